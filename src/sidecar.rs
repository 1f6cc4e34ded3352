//! `tenure sidecar`: a configuration becomes a seat, a driver, a local API, and an exit code.

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{
    Access, Api, ApiConfig, Denied, Health, ListenConfig, Listeners, QuorumRead, Reading, boot_id,
};
use crate::cli::{EXIT_USAGE, VERSION};
use crate::config::{ApiServer, Config};
use crate::core::{Mono, Options, ReadOutcome, Rules, Tell, Verb};
use crate::identity::{self, Claim};
use crate::metrics::{Metrics, Outcome};
use crate::seat::{Clock, Seat};
use crate::shell::clock::SystemClock;
use crate::shell::events::Reporter;
use crate::shell::{
    Connect, Driver, Ending, Events, LeaseApi, Observer, Server, Signals, Target, Teller, access,
    lease_api, token,
};

mod dev;

/// How old the last turn of the elector's loop may be. It turns each second; ten are a stuck loop,
/// not a busy node.
const BEAT_LIMIT: Duration = Duration::from_secs(10);
/// What answers and Events that are on their way get at the end.
const LAST_MOMENT: Duration = Duration::from_millis(200);

/// Runs until told to stop. 0 after an ordered end, 1 where something prevented it, 2 where an
/// address or a file cannot be had, said in one line.
pub async fn run(config: Config) -> ExitCode {
    match start(config).await {
        Ok(Ending::Ordered) => ExitCode::SUCCESS,
        Ok(Ending::Forced) => {
            tracing::warn!("told twice to stop: ending at once, the Lease was not released");
            ExitCode::FAILURE
        }
        Err(Problem { code, text }) => {
            eprintln!("tenure: {text}");
            ExitCode::from(code)
        }
    }
}

struct Problem {
    code: u8,
    text: String,
}

impl Problem {
    fn usage(text: impl ToString) -> Problem {
        Problem { code: EXIT_USAGE, text: text.to_string() }
    }

    fn here(what: &str, error: impl std::fmt::Display) -> Problem {
        Problem { code: 1, text: format!("{what}: {error}") }
    }
}

async fn start(config: Config) -> Result<Ending, Problem> {
    let signals = Signals::of_process().map_err(|e| Problem::here("signals", e))?;
    let listeners = Listeners::bind(&listen_config(&config)).map_err(Problem::usage)?;
    // Where the kernel has none, no other program can compare it either: one of our own.
    let boot_id = boot_id()
        .or_else(|_| identity::new_incarnation())
        .map_err(|e| Problem::here("boot id", e))?;
    let connect = connect(&config).await?;
    // Kept for life: it dies with the process, and only then may a successor take over.
    let claim = identity::claim(&config.lease.namespace, &config.lease.name, &config.identity);
    let options = options(&config, &claim)?;
    tracing::info!(
        version = VERSION,
        lease = config.lease.name,
        namespace = config.lease.namespace,
        identity = config.identity.holder(),
        listen = ?listeners.local_addresses(),
        admin = %listeners.admin_address().map_or_else(|e| e.to_string(), |at| at.to_string()),
        "tenure starts"
    );
    let parts = Parts::new(&config, options, connect);
    let api = Api::new(
        api_config(&config, boot_id),
        parts.seat.clone(),
        parts.watcher.health.clone(),
        parts.watcher.metrics.clone(),
        Arc::new(Quorum { client: parts.connect.client(), target: parts.target.clone() }),
    );
    let ending = drive(&config, parts, signals, listeners.serve(api)).await;
    drop(claim);
    Ok(ending)
}

/// What the tasks of one process share.
struct Parts {
    seat: Arc<Seat>,
    watcher: Arc<Watcher>,
    target: Target,
    connect: Connect,
}

impl Parts {
    fn new(config: &Config, options: Options, connect: Connect) -> Parts {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let target = Target {
            namespace: config.lease.namespace.clone(),
            name: config.lease.name.clone(),
            rules: options.rules,
        };
        let health = Arc::new(Health::new(clock.now().mono, BEAT_LIMIT));
        let deadline = config.timing.renew_deadline();
        let metrics =
            Arc::new(Metrics::new(&target.name, &target.namespace, deadline, clock.clone()));
        let watcher = Arc::new(Watcher { health, metrics, target: target.clone() });
        Parts { seat: Arc::new(Seat::new(options, clock)), watcher, target, connect }
    }
}

/// The election beside the local API, until the one or the other is over.
async fn drive(
    config: &Config,
    parts: Parts,
    signals: Signals,
    serving: impl Future<Output = ()>,
) -> Ending {
    let Parts { seat, watcher, target, connect } = parts;
    let reporter = Reporter {
        identity: config.identity.holder().into(),
        pod: config.identity.pod().map(|(name, uid)| (name.to_owned(), uid.to_owned())),
    };
    let clock = seat.clock().clone();
    let (events, sending) = Events::start(connect.client(), target.clone(), reporter, clock);
    let identity = config.identity.holder().into();
    let teller = Teller::new(target.clone(), identity, watcher.clone(), Some(events));
    let checking = access::run(connect.client(), target.clone(), seat.clone(), watcher);
    let lease = LeaseApi::new(target, connect);
    let driver = Driver::new(seat, lease, teller, signals);

    let mut serving = std::pin::pin!(serving);
    let mut beside = std::pin::pin!(async {
        tokio::join!(&mut serving, checking);
        std::future::pending::<()>().await;
    });
    let ending = tokio::select! {
        ending = driver.run() => ending,
        () = &mut beside => Ending::Forced,
    };
    if ending == Ending::Ordered {
        // Nobody is waited for, but what is already on its way gets out.
        let last =
            async { tokio::join!(sending.finish(LAST_MOMENT), tokio::time::sleep(LAST_MOMENT)) };
        tokio::select! {
            _ = last => {}
            () = beside => {}
        }
    }
    ending
}

fn options(config: &Config, claim: &Claim) -> Result<Options, Problem> {
    match claim {
        Claim::Bound(_) => {}
        Claim::Taken => tracing::warn!(
            identity = config.identity.holder(),
            "another living process here has this identity: no take-over from a predecessor"
        ),
        Claim::Unknown(error) => {
            tracing::info!(%error, "cannot tell whether a predecessor lives: no take-over from one");
        }
    }
    let token = match &config.api_server {
        ApiServer::InCluster { token_file: Some(file), .. } => token::read_text(file).ok(),
        _ => None,
    };
    let incarnation = identity::new_incarnation().map_err(|e| Problem::here("random id", e))?;
    Ok(Options {
        identity: config.identity.holder().into(),
        incarnation: incarnation.into(),
        takes_over: config.identity.takes_over(claim, token.as_deref()),
        timing: config.timing,
        missing_lease: config.missing_lease,
        drain_timeout: config.stepping_down.drain_timeout,
        on_app_exit: config.stepping_down.on_app_exit,
        unsafe_release_on_sigterm: config.stepping_down.unsafe_release_on_sigterm,
        max_valid: config.local_api.max_valid,
        rules: Rules::default(),
    })
}

fn listen_config(config: &Config) -> ListenConfig {
    let local = &config.local_api;
    ListenConfig {
        local: local.listen.clone(),
        socket: local.socket.as_ref().map(|socket| (socket.path.clone(), socket.mode)),
        admin: local.admin_listen,
    }
}

fn api_config(config: &Config, boot_id: String) -> ApiConfig {
    ApiConfig {
        identity: config.identity.holder().to_owned(),
        lease_namespace: config.lease.namespace.clone(),
        lease_name: config.lease.name.clone(),
        boot_id,
        dev: config.dev().is_some(),
        allowed_hosts: config.local_api.allowed_hosts.clone(),
        control_token_file: config.local_api.control_token_file.clone(),
    }
}

async fn connect(config: &Config) -> Result<Connect, Problem> {
    let connect_timeout = config.timing.attempt_timeout();
    match &config.api_server {
        ApiServer::InCluster { server, ca_file, token_file } => Connect::to_server(Server {
            base: server.clone(),
            ca_file: ca_file.clone(),
            token_file: token_file.clone(),
            namespace: config.lease.namespace.clone(),
            connect_timeout,
        })
        .map_err(Problem::usage),
        #[cfg(feature = "kubeconfig")]
        ApiServer::Kubeconfig { path, context } => {
            Connect::by_kubeconfig(path, context.clone(), connect_timeout)
                .await
                .map_err(Problem::usage)
        }
        ApiServer::Dev(role) => Ok(dev::connect(*role, config)),
    }
}

/// Probes and metrics are told by the driver.
#[derive(Debug)]
struct Watcher {
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    target: Target,
}

impl Observer for Watcher {
    fn beat(&self, now: Mono) {
        self.health.beat(now);
    }

    fn request(&self, verb: Verb, outcome: Outcome) {
        self.metrics.request(verb, outcome);
    }

    fn tell(&self, tell: &Tell) {
        self.metrics.tell(tell);
    }

    fn access(&self, missing: &[&'static str]) {
        let denied = |verb: &&str| Denied {
            verb: (*verb).to_owned(),
            resource: format!("leases.coordination.k8s.io/{}", self.target.name),
            namespace: self.target.namespace.clone(),
        };
        let lacks = |verbs: &[&str]| missing.iter().any(|verb| verbs.contains(verb));
        self.metrics.access(Verb::Get, lacks(&["get"]));
        self.metrics.access(Verb::Watch, lacks(&["watch"]));
        self.metrics.access(Verb::Put, lacks(&["update", "create"]));
        self.health.set_access(if missing.is_empty() {
            Access::Passed
        } else {
            Access::Missing(missing.iter().map(denied).collect())
        });
    }
}

/// `GET /fence` reads over connections of its own.
struct Quorum {
    client: kube::Client,
    target: Target,
}

impl std::fmt::Debug for Quorum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quorum").field("target", &self.target).finish_non_exhaustive()
    }
}

impl QuorumRead for Quorum {
    fn read(&self) -> Pin<Box<dyn Future<Output = Reading> + Send>> {
        let (client, target) = (self.client.clone(), self.target.clone());
        Box::pin(async move {
            let lease_api::Explained { outcome, why } = lease_api::read(&client, &target).await;
            match outcome {
                ReadOutcome::Found(observed) => Ok(Some(observed.record)),
                ReadOutcome::Absent => Ok(None),
                ReadOutcome::Failed(failure) => Err(match failure.status {
                    Some(status) => format!("the API server answers {status}"),
                    None => why.unwrap_or_else(|| "the API server does not answer".into()),
                }),
            }
        })
    }
}
