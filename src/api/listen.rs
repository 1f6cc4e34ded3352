//! Listeners, and the connections they accept: bounded in number, in header size and in time.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::hold::{Link, is_evidence};
use super::{Api, Face};

/// The most connections that a listener of the local API has at a time; the kernel queues the rest.
const MAX_LOCAL: usize = 2048;
/// Probes, and a few scrapers.
const MAX_ADMIN: usize = 64;
/// Kept free for the connections to the API server, and for all else that a process opens.
const RESERVED_DESCRIPTORS: usize = 128;
/// Two for each connection of three full listeners, and some.
const WANTED_DESCRIPTORS: u64 = 16_384;
/// A request's head comes within this time, or the connection is closed; so is one left idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest head, in bytes (the least that hyper takes).
const MAX_HEAD: usize = 8 * 1024;
const MAX_HEADERS: usize = 64;
/// What the kernel keeps for a client that does not read, in bytes (it doubles the number): it
/// counts as memory of the container.
const SEND_BUFFER: usize = 32 * 1024;
const BACKLOG: i32 = 1024;
/// After a failed accept (no descriptor left): it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A shortage is over when there was none for this long; the next one is told of again.
const SHORTAGE: Duration = Duration::from_secs(60);

/// Where to listen.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The local API. Port 0: any free one.
    pub local: Vec<SocketAddr>,
    /// The local API on a Unix socket: its path and its mode.
    pub socket: Option<(PathBuf, u32)>,
    /// Probes and metrics.
    pub admin: SocketAddr,
}

/// Why there is no listener. Displays as one line that names the flag and the value.
#[derive(Debug)]
pub struct BindError {
    flag: &'static str,
    value: String,
    error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, value, error } = self;
        match error.kind() {
            io::ErrorKind::AddrInUse => write!(f, "{flag}={value}: already in use"),
            _ => write!(f, "{flag}={value}: cannot listen there: {error}"),
        }
    }
}

impl std::error::Error for BindError {}

/// Bound, not yet served.
#[derive(Debug)]
pub struct Listeners {
    local: Vec<TcpListener>,
    unix: Option<(UnixListener, SocketFile)>,
    admin: TcpListener,
}

/// Removed at the end.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listeners {
    /// Binds all of them, within a runtime. An address of `local` whose family this pod lacks is
    /// skipped, unless none is left; `admin` falls back to IPv4.
    ///
    /// # Errors
    /// The first that cannot be had: wrong usage, exit code 2.
    pub fn bind(config: &ListenConfig) -> Result<Listeners, BindError> {
        let mut local = Vec::new();
        let mut lacking = None;
        for address in &config.local {
            let failed = |error| BindError { flag: "--listen", value: address.to_string(), error };
            match tcp(*address) {
                Ok(listener) => local.push(listener),
                Err(error) if lacks_family(&error) => lacking = Some(failed(error)),
                Err(error) => return Err(failed(error)),
            }
        }
        match lacking {
            Some(error) if local.is_empty() => return Err(error),
            Some(error) => tracing::debug!(%error, "skipped: this pod lacks the address family"),
            None => {}
        }
        let unix = config.socket.as_ref().map(|(path, mode)| {
            unix(path, *mode).map_err(|error| BindError {
                flag: "--socket",
                value: path.display().to_string(),
                error,
            })
        });
        let admin = admin_listener(config.admin).map_err(|error| BindError {
            flag: "--admin-listen",
            value: config.admin.to_string(),
            error,
        })?;
        Ok(Listeners { local, unix: unix.transpose()?, admin })
    }

    /// Where the local API is, with the ports that were given.
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.local.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// # Errors
    /// Where the kernel does not tell.
    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until it is dropped, which closes every connection at once (no hold's end is then the
    /// app's word) and removes the socket file.
    pub async fn serve(self, api: Arc<Api>) {
        let Listeners { local, unix, admin } = self;
        let each = connections_each(local.len() + usize::from(unix.is_some()));
        let mut loops = JoinSet::new();
        for listener in local {
            loops.spawn(accept(Listener::Tcp(listener), Face::Tcp, each, Arc::clone(&api)));
        }
        let file = unix.map(|(listener, file)| {
            loops.spawn(accept(Listener::Unix(listener), Face::Unix, each, Arc::clone(&api)));
            file
        });
        loops.spawn(accept(Listener::Tcp(admin), Face::Admin, MAX_ADMIN, api));
        while loops.join_next().await.is_some() {}
        drop(file);
    }
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    // `::ffff:127.0.0.1` is an IPv4 address.
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    // Accepted connections inherit both.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// `[::]` serves both families; without IPv6 in the kernel, IPv4 alone on the same port.
fn admin_listener(address: SocketAddr) -> io::Result<TcpListener> {
    match tcp(address) {
        Err(error)
            if address.is_ipv6() && address.ip().is_unspecified() && lacks_family(&error) =>
        {
            tcp((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        other => other,
    }
}

fn lacks_family(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL, Errno::PROTONOSUPPORT])
}

/// The mode is set before anybody can connect: between bind and listen.
fn unix(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    let address = SockAddr::unix(path)?;
    remove_stale(path, &address)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address)?;
    let file = SocketFile(path.to_owned());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
    Ok((listener, file))
}

/// A socket file that nobody listens on was left by an earlier process.
fn remove_stale(path: &Path, address: &SockAddr) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        // Connected, or its backlog is full: somebody is there.
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// How many connections each local listener may have, so that descriptors are always left for the
/// connections to the API server.
fn connections_each(listeners: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(WANTED_DESCRIPTORS);
    let mut descriptors = limit.current.unwrap_or(u64::MAX);
    if descriptors < wanted {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            descriptors = wanted;
        }
    }
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    // Two for each connection, three while it is watched.
    let all = descriptors.saturating_sub(RESERVED_DESCRIPTORS + MAX_ADMIN * 2) / 3;
    (all / listeners.max(1)).clamp(1, MAX_LOCAL)
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

async fn accept(listener: Listener, face: Face, most: usize, api: Arc<Api>) {
    let mut http = http1::Builder::new();
    http.half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        // Frames are written from where they are, not copied into a buffer first: that is how the
        // event stream knows that the kernel has taken one.
        .writev(true);
    let slots = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    let (mut slots_short, mut descriptors_short) = (Shortage::default(), Shortage::default());
    loop {
        while connections.try_join_next().is_some() {}
        if slots.available_permits() == 0 && slots_short.is_new() {
            tracing::warn!(
                connections = most,
                listener = ?face,
                "no more connections are taken until one is closed: look for clients that keep \
                 streams or long polls open, or raise the limit of open files"
            );
        }
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let (http, api) = (http.clone(), Arc::clone(&api));
        let accepted = match &listener {
            Listener::Tcp(tcp) => tcp.accept().await.and_then(|(stream, _)| {
                let link = link(face, &stream)?;
                Ok(connections.spawn(async move { serve(&http, stream, link, api, slot).await }))
            }),
            Listener::Unix(unix) => unix.accept().await.and_then(|(stream, _)| {
                let link = link(face, &stream)?;
                SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)?;
                Ok(connections.spawn(async move { serve(&http, stream, link, api, slot).await }))
            }),
        };
        if let Err(error) = accepted {
            tracing::debug!(%error, "a connection could not be accepted");
            if is_shortage(&error) && descriptors_short.is_new() {
                tracing::warn!(
                    %error,
                    connections = most - slots.available_permits(),
                    listener = ?face,
                    "connections cannot be taken: raise the limit of open files"
                );
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// When something was last lacking.
#[derive(Debug, Default)]
struct Shortage(Option<Instant>);

impl Shortage {
    /// It lacks now: whether that is news.
    fn is_new(&mut self) -> bool {
        let last = self.0.replace(Instant::now());
        last.is_none_or(|last| last.elapsed() >= SHORTAGE)
    }
}

/// No descriptor is left, in this process or on this machine.
fn is_shortage(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::MFILE, Errno::NFILE])
}

fn is_one_of(error: &io::Error, known: &[Errno]) -> bool {
    known.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn link(face: Face, stream: &impl AsFd) -> io::Result<Arc<Link>> {
    Ok(Link::new(face, stream.as_fd().try_clone_to_owned()?))
}

/// One connection, to its end. `_slot` is given back with it.
async fn serve<S>(
    http: &http1::Builder,
    stream: S,
    link: Arc<Link>,
    api: Arc<Api>,
    _slot: tokio::sync::OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request| {
        let (api, link) = (Arc::clone(&api), Arc::clone(&link));
        async move { Ok::<_, Infallible>(api.respond(link, request).await) }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    if let Err(error) = connection.as_mut().await {
        tracing::trace!(%error, "connection ended");
        link.close_hold(is_evidence(&error));
    }
}
