//! The carrier `https`: its keys, and how `[hosts]` and `[host.NAME]` are read.

use crate::bulletin::HttpsBulletin;
use crate::client::Peer;
use crate::far::{Far, FarPlan};
use crate::link::{Link, Thread};
use crate::near::{Near, NearPlan};
use crate::section::{self, HostPlan, Secret};
use flow::edge::{Bulletin, CarrierKind, CarrierPlan, HostKeys, LivePlan, Mirror, SharedWorker, SourcePlan};
use flow::{Data, Fault, LiveSink, Source};
use settings::{Key, Refused, Section, Setting, key};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

static KEEP: Key = key(
    "keep",
    "duration",
    "6 h",
    "How far back a mirror begins that has no messages yet, as far as the stream still has them. Messages that a host \
     has not acknowledged are kept for it in any case.",
);

/// HTTPS carries streams between hosts.
pub static CARRIER: CarrierKind = CarrierKind {
    name: "https",
    about: "The hosts themselves, without a broker: each reads the streams of the others by HTTPS. No takeover: a host \
            that is away is waited for.",
    keys: &[&KEEP],
    read,
    host_keys: &section::KEYS,
    read_host: |name, section| Some(Arc::new(section::read(name, section))),
};

/// The reason why a worker cannot run on several hosts.
const NO_TAKEOVER: &str = "carrier https has no takeover: the part of a host that dies would stand still";

/// Reads `[hosts]`.
fn read(section: &mut Section<'_>) -> Option<Arc<dyn CarrierPlan>> {
    let keep: Setting<Duration> = section.need(&KEEP);
    Some(Arc::new(Carrier { keep: keep.value, hosts: Vec::new(), link: None }))
}

/// The carrier.
#[derive(Clone, Debug)]
struct Carrier {
    keep: Duration,
    /// In the order of the file.
    hosts: Vec<Arc<HostPlan>>,
    /// In the process of a host.
    link: Option<Arc<Link>>,
}

impl Carrier {
    fn host(&self, name: &str) -> Option<&Arc<HostPlan>> {
        self.hosts.iter().find(|host| host.name == name)
    }

    fn nowhere(&self) -> Arc<Nowhere> {
        Arc::new(Nowhere(Fault::new("streams between hosts have no carrier", "no host was named")))
    }
}

impl CarrierPlan for Carrier {
    fn near(&self, _: &str, _: &str) -> Arc<dyn LivePlan> {
        self.nowhere()
    }

    fn far(&self, mirror: &Mirror, instrument: &str) -> Arc<dyn SourcePlan> {
        match &self.link {
            Some(link) => {
                let (mirror, instrument, link) = (mirror.clone(), instrument.to_owned(), link.clone());
                Arc::new(FarPlan { mirror, instrument, link })
            }
            None => self.nowhere(),
        }
    }

    fn deal(&self, name: &str, _: &SharedWorker) -> Arc<dyn LivePlan> {
        Arc::new(Nowhere(Fault::new(format!("sink `{name}` cannot work"), NO_TAKEOVER)))
    }

    fn work(&self, shared: &SharedWorker, _: &str) -> (Arc<dyn SourcePlan>, Arc<dyn LivePlan>) {
        let plan = Arc::new(Nowhere(Fault::new(format!("worker `{}` cannot work", shared.name), NO_TAKEOVER)));
        (plan.clone(), plan)
    }

    fn gather(&self, shared: &SharedWorker) -> Arc<dyn SourcePlan> {
        Arc::new(Nowhere(Fault::new(format!("source `{}` cannot work", shared.name), NO_TAKEOVER)))
    }

    fn joined(&self, hosts: &[(String, Option<HostKeys>)]) -> Option<Arc<dyn CarrierPlan>> {
        let keys = |(_, keys): &(String, Option<HostKeys>)| keys.clone()?.downcast::<HostPlan>().ok();
        Some(Arc::new(Self { hosts: hosts.iter().filter_map(keys).collect(), ..self.clone() }))
    }

    fn of_host(&self, host: &str, data: &Path) -> Option<Arc<dyn CarrierPlan>> {
        let link = Link::new(&self.hosts, self.host(host)?, Data::on_disk(data), self.keep);
        Some(Arc::new(Self { link: Some(Arc::new(link)), ..self.clone() }))
    }

    fn near_to(&self, name: &str, instrument: &str, far: &str) -> Option<Arc<dyn LivePlan>> {
        let Some(link) = self.link.clone() else { return Some(self.nowhere()) };
        let (name, instrument, far) = (name.to_owned(), instrument.to_owned(), far.to_owned());
        Some(Arc::new(NearPlan { name, instrument, far, link }))
    }

    fn unreachable(&self, host: &str) -> Option<Refused> {
        let near = self.host(host)?;
        let Some(url) = &near.url else {
            return Some(Refused::new(
                "it has no `url`",
                format!("add `url = \"https://NAME:9400\"` to [host.{host}]"),
            ));
        };
        let needs = url.is_secure && near.token.is_none();
        let without = self.hosts.iter().find(|other| needs && other.name != host && !other.has_certificate())?;
        let cause = format!("host `{}` has no certificate to show", without.name);
        let hint = format!("add `tls = {{ ... }}` to [host.{}], or a `token` to [host.{host}]", without.name);
        Some(Refused::new(cause, hint))
    }

    fn refuses_workers(&self) -> Option<&'static str> {
        Some(NO_TAKEOVER)
    }

    fn holds(&self) -> (Duration, u32) {
        (self.keep, 0)
    }

    fn clock_of(&self) -> Option<String> {
        self.hosts.first().map(|lead| lead.name.clone())
    }

    fn bulletin(&self, instrument: &str, host: Option<&str>) -> Result<Box<dyn Bulletin>, Fault> {
        if let (Some(link), Some(_)) = (&self.link, host) {
            return Ok(Box::new(HttpsBulletin::open(link, instrument)?));
        }
        let lead = self.hosts.first().ok_or_else(|| Fault::new("the instrument has no hosts", ""))?;
        // The certificate that is on this machine is shown.
        let is_here = |host: &&Arc<HostPlan>| {
            let files = [&host.tls.certificate, &host.tls.key];
            files.iter().all(|file| file.as_ref().is_some_and(|path| std::fs::File::open(path).is_ok()))
        };
        let shows = self.hosts.iter().find(is_here).cloned();
        let peer = Peer { instrument: instrument.to_owned(), near: lead.clone(), own: None, shows };
        Ok(Box::new(HttpsBulletin::reading(peer, Thread::start()?)))
    }

    fn secrets(&self) -> Vec<String> {
        let token = |host: &Arc<HostPlan>| match &host.token {
            Some(Secret::Env(name)) => Some(name.clone()),
            _ => None,
        };
        self.hosts.iter().filter_map(token).collect()
    }
}

impl LivePlan for NearPlan {
    fn build(&self, inputs: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        Ok(Box::new(Near::new(self.clone(), inputs)))
    }
}

impl SourcePlan for FarPlan {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(Far::new(self.clone())))
    }
}

/// A stage that cannot be built, and why.
#[derive(Debug)]
struct Nowhere(Fault);

impl LivePlan for Nowhere {
    fn build(&self, _: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        Err(self.0.clone())
    }
}

impl SourcePlan for Nowhere {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Err(self.0.clone())
    }
}
