//! Connections of the operator's ports: how many are open, and why the others ended.
//!
//! Invariant: each connection counts as closed once, with one reason, whatever happens to its task.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// A port of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// 8443: uploads, and requests of samplers.
    Relay,
    /// 8080: results for users.
    Results,
    /// 8081: health and metrics.
    Health,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Either side closed it after an answer.
    Closed,
    /// It broke off, or the data was not HTTP.
    Broken,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// The client sent no complete header in time.
    Silent,
    /// It reached its longest lifetime.
    Expired,
    /// It had shown no grant, and there were too many such connections, so a newer one displaced
    /// it.
    Displaced,
    /// It could not be accepted, for instance because the process has no file descriptor left.
    Refused,
}

impl Port {
    pub(super) const ALL: [Port; 3] = [Port::Relay, Port::Results, Port::Health];

    fn word(self) -> &'static str {
        match self {
            Port::Relay => "relay",
            Port::Results => "results",
            Port::Health => "health",
        }
    }
}

impl End {
    const ALL: [End; 7] = [
        End::Closed,
        End::Broken,
        End::Handshake,
        End::Silent,
        End::Expired,
        End::Displaced,
        End::Refused,
    ];

    fn word(self) -> &'static str {
        match self {
            End::Closed => "closed",
            End::Broken => "broken",
            End::Handshake => "handshake",
            End::Silent => "silent",
            End::Expired => "expired",
            End::Displaced => "displaced",
            End::Refused => "refused",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ByPort {
    port: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ByEnd {
    port: &'static str,
    reason: &'static str,
}

/// The connections of all ports.
#[derive(Clone, Default)]
pub(super) struct ConnectionMetrics {
    pub(super) open: Family<ByPort, Gauge>,
    pub(super) closed: Family<ByEnd, Counter>,
}

impl ConnectionMetrics {
    pub(super) fn of(&self, port: Port) -> PortMetrics {
        let port = port.word();
        PortMetrics {
            port,
            open: self.open.get_or_create_owned(&ByPort { port }),
            closed: self.closed.clone(),
        }
    }

    /// Makes every series begin at 0.
    pub(super) fn list(&self) {
        for port in Port::ALL {
            let of = self.of(port);
            for end in End::ALL {
                let _ = of.counter(end);
            }
        }
    }
}

/// The connections of one port.
#[derive(Clone)]
pub struct PortMetrics {
    port: &'static str,
    open: Gauge,
    closed: Family<ByEnd, Counter>,
}

impl PortMetrics {
    fn counter(&self, end: End) -> Counter {
        let (port, reason) = (self.port, end.word());
        self.closed.get_or_create_owned(&ByEnd { port, reason })
    }

    /// Counts a connection that could not be accepted.
    pub fn refused(&self) {
        self.counter(End::Refused).inc();
    }

    /// Counts one more connection while the returned value lives.
    #[must_use]
    pub fn open(&self) -> OpenConnection {
        self.open.inc();
        OpenConnection {
            port: self.clone(),
            end: End::Displaced,
        }
    }
}

/// An open connection. If its task is aborted, it counts as displaced.
pub struct OpenConnection {
    port: PortMetrics,
    end: End,
}

impl OpenConnection {
    /// The task ended by itself.
    pub fn ends(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.port.open.dec();
        self.port.counter(self.end).inc();
    }
}
