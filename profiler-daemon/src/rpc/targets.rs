//! `profiler.v1.TargetService`.

use std::pin::Pin;

use futures_util::{Stream, stream};
use profiler_proto::v1::{self, target_service_server::TargetService};
use profiler_target::{self as target, Listed};
use tonic::{Request, Response, Status};

use super::{arguments, convert, source};
use crate::session::{
    self, Caller, Census, CommandLines, Counted, FunctionInfo, Handle, Known, Reason, SessionError, Sources,
    Turns, blocking,
};

/// Functions in one message.
const FUNCTIONS_PER_MESSAGE: usize = 1000;

/// The service.
pub struct Targets {
    handle: Handle,
    census: Census,
    /// Whose request has processes looked at: others read files meanwhile.
    turns: Turns,
}

impl Targets {
    /// That of a handle.
    pub fn new(handle: Handle) -> Self {
        Self {
            handle,
            census: Census::default(),
            turns: Turns::new(),
        }
    }
}

#[tonic::async_trait]
impl TargetService for Targets {
    type ListFunctionsStream = Pin<Box<dyn Stream<Item = Result<v1::ListFunctionsResponse, Status>> + Send>>;

    async fn list_processes(
        &self,
        request: Request<v1::ListProcessesRequest>,
    ) -> Result<Response<v1::ListProcessesResponse>, Status> {
        let caller = arguments::caller(&request)?;
        let pattern = request.into_inner().pattern;
        let census = self.census.clone();
        let command_lines = self.handle.command_lines().clone();
        let turn = self.turns.take(caller).await?;
        let processes = blocking(move || {
            let listed = processes(caller, &pattern, &census, &command_lines);
            // Not before it is done, be it that nobody waits for it any more.
            drop(turn);
            listed
        })
        .await?;
        Ok(Response::new(v1::ListProcessesResponse { processes }))
    }

    async fn list_functions(
        &self,
        request: Request<v1::ListFunctionsRequest>,
    ) -> Result<Response<Self::ListFunctionsStream>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::ListFunctionsRequest { target, pattern } = request.into_inner();
        let target = arguments::target(target)?;
        let listed = self
            .handle
            .read(caller, move |library| {
                session::list_functions(library, caller, &target, &pattern)
            })
            .await?;
        let mut messages: Vec<_> = listed
            .functions
            .chunks(FUNCTIONS_PER_MESSAGE)
            .map(|chunk| {
                Ok(v1::ListFunctionsResponse {
                    functions: chunk.iter().map(convert_function).collect(),
                    unnamed: Vec::new(),
                })
            })
            .collect();
        let unnamed = listed.unnamed.into_iter().map(|file| v1::UnnamedFunctions {
            module: file.module,
            count: file.count as u64,
        });
        messages.push(Ok(v1::ListFunctionsResponse {
            functions: Vec::new(),
            unnamed: unnamed.collect(),
        }));
        Ok(Response::new(Box::pin(stream::iter(messages))))
    }

    type SourceStream = Pin<Box<dyn Stream<Item = Result<v1::SourceResponse, Status>> + Send>>;

    async fn source(
        &self,
        request: Request<v1::SourceRequest>,
    ) -> Result<Response<Self::SourceStream>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::SourceRequest { target, place } = request.into_inner();
        let target = arguments::target(target)?;
        let sources = self
            .handle
            .read(caller, move |library| {
                session::sources(library, caller, &target, &place)
            })
            .await?;
        let counted = self.handle.counted(caller, sources.pids.clone()).await?;
        let messages = messages(sources, &counted);
        Ok(Response::new(Box::pin(stream::iter(
            messages.into_iter().map(Ok),
        ))))
    }
}

fn messages(sources: Sources, counted: &[Counted]) -> Vec<v1::SourceResponse> {
    let mut text_left = source::MAX_TEXT_BYTES;
    let mut messages: Vec<v1::SourceResponse> = sources
        .views
        .into_iter()
        .map(|view| v1::SourceResponse {
            function: Some(source::function(view, counted, &mut text_left)),
            left_out: 0,
        })
        .collect();
    if let Some(last) = messages.last_mut() {
        last.left_out = u32::try_from(sources.left_out).unwrap_or(u32::MAX);
    }
    messages
}

fn convert_function(function: &FunctionInfo) -> v1::Function {
    convert::function(function)
}

fn processes(
    caller: Caller,
    pattern: &str,
    census: &Census,
    command_lines: &CommandLines,
) -> Result<Vec<v1::Process>, SessionError> {
    let mut listed = target::list()
        .map_err(|error| SessionError::new(Reason::Kernel, format!("reading /proc: {error}")))?;
    listed.retain(|process| session::may_look(caller, process.pid));
    let mut lines = command_lines.of(caller, &listed);
    if !pattern.is_empty() {
        let line = |process: &Listed| lines.get(&process.pid).map_or("", String::as_str);
        listed.retain(|process| process.matches(pattern, line(process)));
    }
    let mut known = census.of(caller, &listed);
    // Meanwhile its number may have become another's, or it another's.
    listed.retain(|process| session::may_look(caller, process.pid));
    let described = |process: Listed| {
        let known = known.remove(&process.pid).unwrap_or_default();
        let line = lines.remove(&process.pid).unwrap_or_default();
        describe(process, line, known)
    };
    Ok(listed.into_iter().map(described).collect())
}

fn describe(process: Listed, command_line: String, known: Known) -> v1::Process {
    let executable = process.executable.map(|path| path.display().to_string());
    v1::Process {
        pid: process.pid,
        uid: process.uid,
        threads: process.threads,
        name: process.name.clone(),
        executable: executable.unwrap_or_default(),
        command: if command_line.is_empty() {
            process.name
        } else {
            command_line
        },
        symbols: known.symbols.into(),
        debug_info: known.debug_info.into(),
        runtime: known.runtime.into(),
        container: known.surroundings.container.unwrap_or_default(),
        unit: known.surroundings.unit.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn processes_are_found_by_their_command_lines_and_described_by_them() {
        let mut child = Command::new("/bin/sleep");
        let mut child = child.arg("98765.25").stdin(Stdio::null()).spawn().unwrap();
        let (uid, gid) = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        let caller = Caller { uid, gid };
        let (census, command_lines) = (Census::default(), CommandLines::default());
        let by = |pattern: &str| processes(caller, pattern, &census, &command_lines).unwrap();
        // Others may keep this machine busy for longer than a look is waited for.
        let until = Instant::now() + Duration::from_mins(1);
        let by_command = loop {
            let found = by("sleep 98765.25");
            if !found.is_empty() || Instant::now() > until {
                break found;
            }
        };
        let pids: Vec<_> = by(&child.id().to_string())
            .iter()
            .map(|process| process.pid)
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let [found] = &*by_command else {
            panic!("{by_command:?}")
        };
        assert_eq!((found.pid, &*found.command), (child.id(), "/bin/sleep 98765.25"));
        assert!(pids.contains(&child.id()));
    }
}
