//! The service-account token: read from its file, kept a while, read again when it is refused.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

/// The kubelet replaces a token when a fifth of its life is left, minutes before its end.
const MAX_AGE: Duration = Duration::from_secs(50);
/// Tokens are a few kilobytes; a header larger than this is refused by every server.
const MAX_BYTES: u64 = 64 * 1024;

/// A bearer token in a file. Its age is counted by the runtime's clock, never by the wall clock.
#[derive(Debug)]
pub struct Token {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    value: Option<HeaderValue>,
    read_at: Option<Instant>,
    /// Counts the readings, so that a refusal speaks of the one that was sent.
    generation: u64,
    failing: bool,
}

impl Token {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(file: PathBuf) -> Token {
        Token { file, state: Mutex::default() }
    }

    /// The header to send, and which reading it is from. A file that cannot be read leaves the
    /// token as it was, which is said once.
    pub fn current(&self) -> (Option<HeaderValue>, u64) {
        let mut state = self.lock();
        if state.read_at.is_none_or(|at| at.elapsed() >= MAX_AGE) {
            state.read_at = Some(Instant::now());
            state.generation += 1;
            match read(&self.file) {
                Ok(value) => {
                    state.value = Some(value);
                    state.failing = false;
                }
                Err(error) if !state.failing => {
                    state.failing = true;
                    tracing::warn!(file = %self.file.display(), error, "token cannot be read");
                }
                Err(_) => {}
            }
        }
        (state.value.clone(), state.generation)
    }

    /// The server does not take the token of this reading: the next request reads the file again.
    pub fn refused(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation == generation {
            state.read_at = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The text of a token file.
///
/// # Errors
/// Why it cannot be used, in one line.
pub fn read_text(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(MAX_BYTES).read_to_string(&mut text))
        .map_err(|error| error.to_string())?;
    match text.trim() {
        "" => Err("it is empty".into()),
        token => Ok(token.to_owned()),
    }
}

fn read(file: &Path) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", read_text(file)?))
        .map_err(|_| "it holds what no header can".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn scenario_r8_the_file_is_read_again_when_old_or_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\n").unwrap();
        let token = Token::new(file.path().into());
        let text = |token: &Token| token.current().0.map(|v| v.to_str().unwrap().to_owned());
        assert_eq!(text(&token).as_deref(), Some("Bearer one"));
        std::fs::write(file.path(), "two").unwrap();
        assert_eq!(text(&token).as_deref(), Some("Bearer one"), "kept a while");
        let (_, sent) = token.current();
        token.refused(sent);
        assert_eq!(text(&token).as_deref(), Some("Bearer two"), "read at once after a 401");
        token.refused(sent);
        std::fs::write(file.path(), "three").unwrap();
        assert_eq!(text(&token).as_deref(), Some("Bearer two"), "a late refusal of the old one");
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(text(&token).as_deref(), Some("Bearer three"));
        std::fs::write(file.path(), "").unwrap();
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(
            text(&token).as_deref(),
            Some("Bearer three"),
            "an unreadable file changes nothing"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_readable_file_no_token_is_sent() {
        assert_eq!(Token::new("/does/not/exist".into()).current().0, None);
    }
}
