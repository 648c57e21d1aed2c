//! What steps ask of the network, and how it disappoints them.

use std::time::Duration;

/// An HTTP request. Redirects are followed, five at most.
#[derive(Debug, Clone)]
pub struct Request {
    /// `http://…` or `https://…`.
    pub url: String,
    /// Names and values to add.
    pub headers: Vec<(String, String)>,
    /// Whose certificates to believe.
    pub trust: Trust,
    /// How long all of it may take.
    pub timeout: Duration,
    /// An HTTP proxy to go through, `http://host:port`.
    pub proxy: Option<String>,
}

/// Whose certificates to believe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The machine's own store.
    System,
    /// These CAs and no others, as PEM.
    Only(Vec<u8>),
}

impl Request {
    /// A GET that believes the machine's CAs and may take 15 s.
    pub fn get(url: impl Into<String>) -> Request {
        Request {
            url: url.into(),
            headers: Vec::new(),
            trust: Trust::System,
            timeout: Duration::from_secs(15),
            proxy: None,
        }
    }

    /// Believe these CAs only.
    pub fn trusting(mut self, pem: impl Into<Vec<u8>>) -> Request {
        self.trust = Trust::Only(pem.into());
        self
    }

    /// How long all of it may take.
    pub fn at_most(mut self, timeout: Duration) -> Request {
        self.timeout = timeout;
        self
    }

    /// One more header.
    pub fn with_header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Go through a proxy.
    pub fn through(mut self, proxy: Option<String>) -> Request {
        self.proxy = proxy;
        self
    }
}

/// A URL as it may be shown: what follows the question mark is often a signature that opens doors.
pub(crate) fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// Where the body of an answer goes.
pub trait Body: std::io::Write {
    /// Told before the first byte, with the length where the server says it. Without consent nothing is written.
    fn begin(&mut self, _status: u16, _length: Option<u64>) -> std::io::Result<bool> {
        Ok(true)
    }
}

impl Body for Vec<u8> {}
impl Body for std::io::Sink {}

/// An answer, whatever it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// 200 and so on.
    pub status: u16,
}

/// Why there was no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The resolver said that there is no such name.
    #[error("the name `{name}` does not exist")]
    UnknownName {
        /// What was asked.
        name: String,
    },
    /// No resolver answered.
    #[error("no DNS server answered for `{name}`: {cause}")]
    NoResolver {
        /// What was asked.
        name: String,
        /// What went wrong.
        cause: String,
    },
    /// Nobody listens, or the way there is closed.
    #[error("`{server}` cannot be reached: {cause}")]
    Unreachable {
        /// Who.
        server: String,
        /// What went wrong.
        cause: String,
    },
    /// No answer in time.
    #[error("`{server}` did not answer within {:.1} s", limit.as_secs_f64())]
    TimedOut {
        /// Who.
        server: String,
        /// How long was waited.
        limit: Duration,
    },
    /// It answered with a certificate that is not believed.
    #[error("the certificate of `{server}` is not trusted: {cause}")]
    Certificate {
        /// Who.
        server: String,
        /// What is wrong with it.
        cause: String,
    },
    /// It answered with a certificate that is no longer, or not yet, valid by this machine's clock.
    #[error("the certificate of `{server}` is not valid now: {cause}")]
    CertificateTime {
        /// Who.
        server: String,
        /// Which moment it is, and which it should be.
        cause: String,
    },
    /// It does not speak HTTP, or the request makes no sense.
    #[error("`{server}`: {cause}")]
    Protocol {
        /// Who.
        server: String,
        /// What went wrong.
        cause: String,
    },
}
