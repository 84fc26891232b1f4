//! `profiler.v1.TargetService`.

use std::pin::Pin;

use futures_util::{Stream, stream};
use profiler_proto::v1::{self, target_service_server::TargetService};
use profiler_target::{self as target, Listed};
use tonic::{Request, Response, Status};

use super::{arguments, convert, source};
use crate::session::{
    self, Caller, Census, Counted, FunctionInfo, Handle, Known, Reason, SessionError, Sources, blocking,
};

/// Functions in one message.
const FUNCTIONS_PER_MESSAGE: usize = 1000;

/// The service.
pub struct Targets {
    handle: Handle,
    census: Census,
}

impl Targets {
    /// That of a handle.
    pub fn new(handle: Handle) -> Self {
        Self {
            handle,
            census: Census::default(),
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
        let processes = blocking(move || processes(caller, &pattern, &census)).await?;
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

fn processes(caller: Caller, pattern: &str, census: &Census) -> Result<Vec<v1::Process>, SessionError> {
    let mut listed = target::list((!pattern.is_empty()).then_some(pattern))
        .map_err(|error| SessionError::new(Reason::Kernel, format!("reading /proc: {error}")))?;
    listed.retain(|process| session::may_look(caller, process.pid));
    let mut known = census.of(&listed);
    // Meanwhile its number may have become another's, or it another's.
    listed.retain(|process| session::may_look(caller, process.pid));
    let described = |process: Listed| {
        let known = known.remove(&process.pid).unwrap_or_default();
        describe(process, known)
    };
    Ok(listed.into_iter().map(described).collect())
}

fn describe(process: Listed, known: Known) -> v1::Process {
    let executable = process.executable.map(|path| path.display().to_string());
    v1::Process {
        pid: process.pid,
        uid: process.uid,
        threads: process.threads,
        name: process.name.clone(),
        executable: executable.unwrap_or_default(),
        command: if process.command_line.is_empty() {
            process.name
        } else {
            process.command_line
        },
        symbols: known.symbols.into(),
        debug_info: known.debug_info.into(),
        runtime: known.runtime.into(),
        container: known.surroundings.container.unwrap_or_default(),
        unit: known.surroundings.unit.unwrap_or_default(),
    }
}
