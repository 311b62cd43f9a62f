//! The server: hears a call, asks the module of the tool, answers.
//!
//! Invariant: a call that fails is answered with its failure, and the server lives on. A cancelled
//! call ends at once.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, refused};
use super::ask::{
    CalleesAsked, CallersAsked, DiffAsked, FindingsAsked, LinesAsked, NothingAsked, ProfileAsked,
    ProfilingAsked, ReleasesAsked, RequestsAsked, TopAsked, VerdictAsked, asked,
};
use super::compare::PairEnd;
use super::run::AgentRuns;
use super::store::{AgentSide, AgentStore, apart};
use super::tools::{AgentTool, INSTRUCTIONS};
use super::{calls, describe, diff, dump, findings, lines, list, requests, top, verdict};
use crate::failure::{Exit, Failure};
use crate::request::{RequestView, ShownOutcome};
use crate::source::ProfileSource;

/// The most calls that work at the same time. Others wait for their turn.
const AT_ONCE: usize = 4;

/// The server of one client.
pub struct AgentServer {
    store: AgentStore,
    /// `None` without `--allow-run`.
    runs: Option<AgentRuns>,
    turns: Semaphore,
}

impl AgentServer {
    pub fn new(store: AgentStore, runs: Option<AgentRuns>) -> Self {
        AgentServer {
            store,
            runs,
            turns: Semaphore::new(AT_ONCE),
        }
    }

    fn tool(&self, name: &str) -> Option<AgentTool> {
        AgentTool::offered(self.runs.is_some()).find(|tool| tool.name() == name)
    }

    async fn answer(
        &self,
        tool: AgentTool,
        arguments: Option<JsonObject>,
        cancelled: &CancellationToken,
    ) -> CallToolResult {
        let answered = match self.turns.acquire().await {
            Ok(_turn) => self.perform(tool, arguments, cancelled).await,
            Err(_) => Err(ended()),
        };
        match answered {
            Ok(answer) => answer.result(),
            Err(failure) => {
                self.store.note(&failure).await;
                let mut next = AgentNexts::default();
                if failure.exit == Exit::NotFound {
                    next.add("list_profiles", "the profiles that there are", json!({}));
                }
                refused(&self.store.place(), &failure, &next)
            }
        }
    }

    async fn perform(
        &self,
        tool: AgentTool,
        arguments: Option<JsonObject>,
        cancelled: &CancellationToken,
    ) -> Result<AgentAnswer, Failure> {
        match tool {
            AgentTool::ListProfiles => {
                asked::<NothingAsked>(arguments)?;
                self.list().await
            }
            AgentTool::DescribeProfile => {
                let asked: ProfileAsked = asked(arguments)?;
                self.describe(&asked.profile).await
            }
            AgentTool::Findings => {
                let profile = |it: &FindingsAsked| it.profile.clone();
                self.viewed(arguments, profile, findings::answer).await
            }
            AgentTool::Top => {
                let profile = |it: &TopAsked| it.profile.clone();
                self.viewed(arguments, profile, top::answer).await
            }
            AgentTool::Callers => {
                let profile = |it: &CallersAsked| it.profile.clone();
                self.viewed(arguments, profile, calls::callers).await
            }
            AgentTool::Callees => {
                let profile = |it: &CalleesAsked| it.profile.clone();
                self.viewed(arguments, profile, calls::callees).await
            }
            AgentTool::Lines => {
                let profile = |it: &LinesAsked| it.profile.clone();
                self.viewed(arguments, profile, lines::answer).await
            }
            AgentTool::Requests => self.requests(asked(arguments)?).await,
            AgentTool::Dump => self.dump(asked(arguments)?).await,
            AgentTool::Diff => self.diff(asked(arguments)?).await,
            AgentTool::Verdict => self.verdict(asked(arguments)?).await,
            AgentTool::Run => {
                let asked: ProfilingAsked = asked(arguments)?;
                let cluster = self.store.cluster().await?;
                let place = self.store.place();
                self.runs()?.run(&cluster, &place, &asked, cancelled).await
            }
            AgentTool::Compare => self.compare(asked(arguments)?, cancelled).await,
            AgentTool::Cancel => {
                let asked: ProfileAsked = asked(arguments)?;
                let cluster = self.store.cluster().await?;
                let place = self.store.place();
                self.runs()?.cancel(&cluster, &place, &asked.profile).await
            }
        }
    }

    fn runs(&self) -> Result<&AgentRuns, Failure> {
        self.runs.as_ref().ok_or_else(|| {
            Failure::new(
                Exit::Forbidden,
                "this server starts and cancels nothing",
                "a user can start it with --allow-run",
            )
        })
    }

    async fn list(&self) -> Result<AgentAnswer, Failure> {
        if let Some(files) = self.store.files() {
            let (files, left_out) = files.listed();
            return list::of_files(&files, left_out, &self.store.place());
        }
        let cluster = self.store.cluster().await?;
        list::of_cluster(&cluster, &self.store.place(), self.runs.is_some()).await
    }

    async fn describe(&self, name: &str) -> Result<AgentAnswer, Failure> {
        if self.store.files().is_some() {
            let shown = name.to_owned();
            return self
                .view(name, move |it, place| {
                    describe::answer(Some(&it.profile), None, place, &shown)
                })
                .await;
        }
        let subject = self.store.subject(name).await?;
        let place = self.store.place().of_profile(name);
        let object = subject.object().cloned();
        let has_profile = object.as_ref().is_none_or(|object| {
            let request = RequestView::of(object);
            let is_stored = !request.words("/status/profile/url").is_empty();
            is_stored && request.outcome() == ShownOutcome::Complete
        });
        let source = match has_profile.then_some(&subject) {
            Some(subject) => Some(self.store.of_subject(subject).await?),
            None => None,
        };
        let name = name.to_owned();
        apart(move || {
            let profile = source.as_ref().map(|source| &source.profile);
            let request = object.as_ref().map(RequestView::of);
            describe::answer(profile, request.as_ref(), &place, &name)
        })
        .await
    }

    async fn dump(&self, asked: ProfileAsked) -> Result<AgentAnswer, Failure> {
        let (name, allows_run) = (asked.profile, self.runs.is_some());
        let shown = name.clone();
        self.view(&name, move |it, place| {
            dump::answer(it, place, &shown, allows_run)
        })
        .await
    }

    async fn requests(&self, asked: RequestsAsked) -> Result<AgentAnswer, Failure> {
        let bytes = self.store.requests(&asked.profile).await?;
        let place = self.store.place().of_profile(&asked.profile);
        apart(move || requests::answer(&bytes, &place, &asked)).await
    }

    async fn diff(&self, asked: DiffAsked) -> Result<AgentAnswer, Failure> {
        let sides = self.sides(&asked.before, &asked.after).await?;
        let place = self.store.place();
        apart(move || diff::answer(sides, &place, &asked)).await
    }

    async fn verdict(&self, asked: VerdictAsked) -> Result<AgentAnswer, Failure> {
        let sides = self.sides(&asked.before, &asked.after).await?;
        let place = self.store.place();
        apart(move || verdict::answer(sides, &place, &asked)).await
    }

    async fn compare(
        &self,
        asked: ReleasesAsked,
        cancelled: &CancellationToken,
    ) -> Result<AgentAnswer, Failure> {
        let runs = self.runs()?;
        let cluster = self.store.cluster().await?;
        let place = self.store.place();
        match runs.compare(&cluster, &place, &asked, cancelled).await? {
            PairEnd::Open(answer) => Ok(answer),
            PairEnd::Recorded(recorded) => tokio::select! {
                verdict = self.verdict(recorded) => verdict,
                () = cancelled.cancelled() => Err(ended()),
            },
        }
    }

    async fn sides(&self, before: &str, after: &str) -> Result<[AgentSide; 2], Failure> {
        Ok([
            self.store.side(before).await?,
            self.store.side(after).await?,
        ])
    }

    /// An answer about the profile that the arguments name.
    async fn viewed<Asked: DeserializeOwned + Send + 'static>(
        &self,
        arguments: Option<JsonObject>,
        profile: fn(&Asked) -> String,
        answer: fn(&ProfileSource, &AgentPlace, &Asked) -> Result<AgentAnswer, Failure>,
    ) -> Result<AgentAnswer, Failure> {
        let asked: Asked = asked(arguments)?;
        self.view(&profile(&asked), move |it, place| answer(it, place, &asked))
            .await
    }

    /// An answer about one profile.
    async fn view(
        &self,
        name: &str,
        answer: impl FnOnce(&ProfileSource, &AgentPlace) -> Result<AgentAnswer, Failure>
        + Send
        + 'static,
    ) -> Result<AgentAnswer, Failure> {
        let source = self.store.profile(name).await?;
        let place = self.store.place().of_profile(name);
        apart(move || answer(&source, &place)).await
    }
}

fn ended() -> Failure {
    Failure::new(
        Exit::Interrupted,
        "the server ends",
        "start it again: kubectl phpprof mcp",
    )
}

impl ServerHandler for AgentServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_instructions(INSTRUCTIONS);
        info.server_info = Implementation::new("phpprof", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = AgentTool::offered(self.runs.is_some()).map(AgentTool::definition);
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tool(&request.name) else {
            let names: Vec<_> = AgentTool::offered(self.runs.is_some())
                .map(AgentTool::name)
                .collect();
            return Err(ErrorData::invalid_params(
                format!("no such tool; there are {}", names.join(", ")),
                None,
            ));
        };
        let cancelled = &context.ct;
        // What takes profiles hears of its cancellation itself, because it has something to end.
        let result = if tool.takes_profiles() {
            self.answer(tool, request.arguments, cancelled).await
        } else {
            tokio::select! {
                result = self.answer(tool, request.arguments, cancelled) => result,
                () = cancelled.cancelled() => refused(&self.store.place(), &ended(), &AgentNexts::default()),
            }
        };
        Ok(result.into())
    }
}
