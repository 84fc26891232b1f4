//! `profiler.v1.SessionService`.

use profiler_proto::v1::{self, session_service_server::SessionService};
use tonic::{Request, Response, Status};

use super::{arguments, convert, estimate};
use crate::session::{Handle, Looks};

/// The service.
pub struct Sessions(pub Handle);

#[tonic::async_trait]
impl SessionService for Sessions {
    async fn create_session(
        &self,
        request: Request<v1::CreateSessionRequest>,
    ) -> Result<Response<v1::CreateSessionResponse>, Status> {
        let caller = arguments::caller(&request)?;
        let mut request = request.into_inner();
        let symbols = std::mem::take(&mut request.symbols);
        let symbols = symbols.into_iter().map(Into::into).collect();
        let new = arguments::new_session(request)?;
        let session = self.0.create_with_symbols(caller, new, symbols).await?;
        Ok(Response::new(v1::CreateSessionResponse {
            session: Some(convert::session(session)),
        }))
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let sessions = self.0.list(arguments::caller(&request)?).await?;
        let sessions = sessions.into_iter().map(convert::session).collect();
        Ok(Response::new(v1::ListSessionsResponse { sessions }))
    }

    async fn set_scope(
        &self,
        request: Request<v1::SetScopeRequest>,
    ) -> Result<Response<v1::SetScopeResponse>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::SetScopeRequest { name, scope } = request.into_inner();
        let session = self.0.set_scope(caller, arguments::name(name)?, scope).await?;
        Ok(Response::new(v1::SetScopeResponse {
            session: Some(convert::session(session)),
        }))
    }

    async fn edit_scope(
        &self,
        request: Request<v1::EditScopeRequest>,
    ) -> Result<Response<v1::EditScopeResponse>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::EditScopeRequest { name, edit } = request.into_inner();
        let session = self
            .0
            .edit_scope(caller, arguments::name(name)?, arguments::edit(edit)?)
            .await?;
        Ok(Response::new(v1::EditScopeResponse {
            session: Some(convert::session(session)),
        }))
    }

    async fn estimate_scope(
        &self,
        request: Request<v1::EstimateScopeRequest>,
    ) -> Result<Response<v1::EstimateScopeResponse>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::EstimateScopeRequest {
            request,
            measure,
            sampled,
        } = request.into_inner();
        let of = arguments::estimated(request)?;
        let looks = Looks {
            sampled_ns: arguments::sampled_ns(sampled)?,
            measures: measure,
        };
        let estimate = self.0.estimate(caller, of, looks).await?;
        Ok(Response::new(estimate::response(estimate)))
    }

    async fn renew_session(
        &self,
        request: Request<v1::RenewSessionRequest>,
    ) -> Result<Response<v1::RenewSessionResponse>, Status> {
        let caller = arguments::caller(&request)?;
        let lease_ns = self
            .0
            .renew(caller, arguments::name(request.into_inner().name)?)
            .await?;
        Ok(Response::new(v1::RenewSessionResponse {
            lease: Some(convert::duration(lease_ns)),
        }))
    }

    async fn end_session(
        &self,
        request: Request<v1::EndSessionRequest>,
    ) -> Result<Response<v1::EndSessionResponse>, Status> {
        let caller = arguments::caller(&request)?;
        self.0
            .end(caller, arguments::name(request.into_inner().name)?)
            .await?;
        Ok(Response::new(v1::EndSessionResponse {}))
    }
}
