//! Connections of the operator's ports: how many are open, and what ended the others.
//!
//! Invariant: whatever becomes of a connection's task, it counts as closed once, by one reason.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// A port of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// 8443: uploads, and what samplers ask.
    Relay,
    /// 8080: what people read.
    Results,
    /// 8081: health and metrics.
    Health,
}

/// What ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Either side closed it after an answer.
    Closed,
    /// It broke off, or what came was no HTTP.
    Broken,
    /// No TLS was agreed on in time, or at all.
    Handshake,
    /// It sent no whole header in time.
    Silent,
    /// Its time was over.
    Expired,
    /// It had shown no grant, and there were too many of these: it made room for a newer one.
    Displaced,
    /// It could not be accepted: the process has no descriptor left, for instance.
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

/// Of all ports.
#[derive(Clone, Default)]
pub(super) struct Connections {
    pub(super) open: Family<ByPort, Gauge>,
    pub(super) closed: Family<ByEnd, Counter>,
}

impl Connections {
    pub(super) fn of(&self, port: Port) -> PortMetrics {
        let port = port.word();
        PortMetrics {
            port,
            open: self.open.get_or_create_owned(&ByPort { port }),
            closed: self.closed.clone(),
        }
    }

    /// Every series begins at 0.
    pub(super) fn list(&self) {
        for port in Port::ALL {
            let of = self.of(port);
            for end in End::ALL {
                let _ = of.counter(end);
            }
        }
    }
}

/// Of one port.
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

    /// A connection that could not be accepted.
    pub fn refused(&self) {
        self.counter(End::Refused).inc();
    }

    /// One more connection, for as long as the answer lives.
    #[must_use]
    pub fn open(&self) -> Open {
        self.open.inc();
        Open {
            port: self.clone(),
            end: End::Displaced,
        }
    }
}

/// An open connection. Where its task is ended from outside, it was displaced.
pub struct Open {
    port: PortMetrics,
    end: End,
}

impl Open {
    /// Its task comes to an end of its own.
    pub fn ends(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.port.open.dec();
        self.port.counter(self.end).inc();
    }
}
