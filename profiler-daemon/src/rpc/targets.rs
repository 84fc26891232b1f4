//! `profiler.v1.TargetService`.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{Stream, stream};
use profiler_proto::v1::{self, target_service_server::TargetService};
use profiler_target::{self as target, Listed};
use tonic::{Request, Response, Status};

use super::{arguments, convert, source};
use crate::session::{
    self, Backlogs, Caller, Census, CommandLines, Counted, Handle, Known, Reason, Room, SessionError,
    Sources, Turns, UnnamedFunctions, blocking,
};

/// Functions in one message.
const FUNCTIONS_PER_MESSAGE: usize = 1000;

/// The service.
pub struct Targets {
    handle: Handle,
    census: Census,
    /// Whose request has processes looked at: others read files meanwhile.
    turns: Turns,
    answers: Answers,
}

/// What answers take that clients have not read yet, by user.
#[derive(Default)]
struct Answers(Mutex<Backlogs>);

impl Answers {
    /// Room for one of so many bytes, until its client has read it.
    fn room(&self, caller: Caller, bytes: usize) -> Result<Arc<Room>, SessionError> {
        let mut backlogs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Each may take half of what the others leave.
        let room = backlogs.of(caller).stream().room(bytes);
        room.ok_or_else(|| {
            let message = "answers to earlier requests of yours wait to be read, and take too much memory: read them, or close their \
                           connections, and try again";
            SessionError::new(Reason::LimitReached, message)
        })
    }
}

impl Targets {
    /// That of a handle.
    pub fn new(handle: Handle) -> Self {
        Self {
            handle,
            census: Census::default(),
            turns: Turns::new(),
            answers: Answers::default(),
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
        let room = self.answers.room(caller, listed.memory())?;
        let mut functions = listed.functions.into_iter();
        // The last message has what has no name.
        let mut unnamed = Some(listed.unnamed);
        let messages = std::iter::from_fn(move || {
            // Until the last has left.
            let _ = &room;
            let next: Vec<_> = functions.by_ref().take(FUNCTIONS_PER_MESSAGE).collect();
            if next.is_empty() {
                return Some(Ok(unnamed_functions(unnamed.take()?)));
            }
            Some(Ok(v1::ListFunctionsResponse {
                functions: next.iter().map(convert::function).collect(),
                unnamed: Vec::new(),
            }))
        });
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
        let room = self
            .answers
            .room(caller, messages.iter().map(prost::Message::encoded_len).sum())?;
        let messages = messages.into_iter().map(move |message| {
            // Until the last has left.
            let _ = &room;
            Ok(message)
        });
        Ok(Response::new(Box::pin(stream::iter(messages))))
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

fn unnamed_functions(files: Vec<UnnamedFunctions>) -> v1::ListFunctionsResponse {
    let unnamed = files.into_iter().map(|file| v1::UnnamedFunctions {
        module: file.module,
        count: file.count as u64,
    });
    v1::ListFunctionsResponse {
        functions: Vec::new(),
        unnamed: unnamed.collect(),
    }
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
    fn answers_that_nobody_reads_are_bounded() {
        const USER: Caller = Caller { uid: 7, gid: 7 };
        let answers = Answers::default();
        let first = answers.room(USER, 40 << 20).unwrap();
        let refused = answers.room(USER, 20 << 20).unwrap_err();
        assert_eq!(refused.reason, Reason::LimitReached);
        // Another user's, and a small one.
        answers.room(Caller { uid: 8, gid: 8 }, 20 << 20).unwrap();
        answers.room(USER, 1 << 20).unwrap();
        drop(first);
        // Whatever is asked for where nothing waits, as it cannot be made smaller.
        answers.room(USER, 100 << 20).unwrap();
    }

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
