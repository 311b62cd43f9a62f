//! A profile as OTLP's messages: pure.
//!
//! The messages are those of opentelemetry-proto v1.10.0, package
//! `opentelemetry.proto.profiles.v1development`; v1.11.0 has the same fields.
//!
//! Invariant: for each sample type, the values of all messages add up to those of the samples. No
//! message exceeds a bound unless a single sample does.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use phpprof_profile::labels::{SPAN_ID, TRACE_ID};
use phpprof_profile::{PieceBounds, Profile, SampleSource, proto};
use prost::Message as _;

use crate::export::otlp::dictionary::{DictionaryTables, OtlpValue};

/// A receiver of gRPC takes 4 MiB by default, and Pyroscope 2 MB and 16,000 samples of each sample
/// type, before compression.
pub const BOUNDS: PieceBounds = PieceBounds {
    bytes: 2_000_000,
    samples: 16_000,
};
/// Messages of one engine. No profile has needed this many.
const MOST_MESSAGES: usize = 128;
/// Engines of one profile: each pod has at least one.
const MOST_ENGINES: usize = 512;

/// The operator does not push a part of a profile as the whole, because its totals would be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotConverted {
    #[error("the profile is too large: it would be {0} pushes, and {MOST_MESSAGES} are the most")]
    Messages(usize),
    #[error("the profile has more than {MOST_ENGINES} versions of PHP in its pods")]
    Engines,
}

/// What one resource of OTLP is: a PHP in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfiledEngine {
    pub pod: String,
    pub container: String,
    pub version: String,
    /// What `php_sapi_name()` returns there.
    pub sapi: String,
}

/// What is known of an engine's profiles, apart from their samples.
#[derive(Clone, Debug, Default)]
pub struct EngineFacts {
    pub engine: ProfiledEngine,
    pub resource: Resource,
}

/// The indexes of the texts that name an engine.
type EngineKey = [i64; 4];

/// The labels that say which engine a sample is of, and the sample's own ones.
fn split(profile: &Profile, sample: &proto::Sample) -> (EngineKey, Vec<proto::Label>) {
    let (mut key, mut own) = (EngineKey::default(), Vec::new());
    for label in &sample.label {
        match profile.string(label.key) {
            "pod" => key[0] = label.str,
            "container" => key[1] = label.str,
            "php" => key[2] = label.str,
            "sapi" => key[3] = label.str,
            "namespace" => {}
            _ => own.push(*label),
        }
    }
    own.sort_unstable();
    (key, own)
}

fn engine(profile: &Profile, key: EngineKey) -> ProfiledEngine {
    let [pod, container, version, sapi] = key.map(|index| profile.string(index).to_owned());
    ProfiledEngine {
        pod,
        container,
        version,
        sapi,
    }
}

/// The engines that samples are of.
pub fn engines<S: SampleSource + ?Sized>(source: &S) -> Result<Vec<ProfiledEngine>, NotConverted> {
    let mut keys = HashSet::new();
    source.each(&mut |sample| {
        if keys.len() <= MOST_ENGINES {
            keys.insert(split(source.head(), sample).0);
        }
    });
    if keys.len() > MOST_ENGINES {
        return Err(NotConverted::Engines);
    }
    let named = keys.into_iter().map(|key| engine(source.head(), key));
    let mut engines: Vec<_> = named.collect();
    engines.sort_unstable();
    Ok(engines)
}

/// Values with a number each, in the order in which they came.
struct OtlpNumbers<T>(HashMap<T, usize>);

impl<T: Eq + Hash> OtlpNumbers<T> {
    fn number(&mut self, value: T) -> usize {
        let next = self.0.len();
        *self.0.entry(value).or_insert(next)
    }

    fn finish(self) -> Vec<T> {
        let mut values: Vec<_> = self.0.into_iter().collect();
        values.sort_unstable_by_key(|(_, number)| *number);
        values.into_iter().map(|(value, _)| value).collect()
    }
}

/// A sample: the numbers of its stack and of its labels, and a value for each sample type.
struct OtlpRow {
    stack: usize,
    labels: usize,
    values: Box<[i64]>,
}

/// One engine's part of a profile.
struct EnginePart<'a> {
    profile: &'a Profile,
    functions: HashMap<u64, &'a proto::Function>,
    locations: HashMap<u64, &'a proto::Location>,
    facts: &'a EngineFacts,
    /// Ids of locations, leaf first.
    stacks: Vec<Box<[u64]>>,
    labels: Vec<Vec<proto::Label>>,
    rows: Vec<OtlpRow>,
}

impl<'a> EnginePart<'a> {
    fn of<S: SampleSource + ?Sized>(source: &'a S, facts: &'a EngineFacts) -> Self {
        let profile = source.head();
        let (mut stacks, mut labels) = (OtlpNumbers(HashMap::new()), OtlpNumbers(HashMap::new()));
        // In order, so that the same profile gives the same messages.
        let mut sums: BTreeMap<(usize, usize), Box<[i64]>> = BTreeMap::new();
        let mut keys: HashMap<EngineKey, bool> = HashMap::new();
        source.each(&mut |sample| {
            let (key, own) = split(profile, sample);
            let is_ours = || engine(profile, key) == facts.engine;
            if !*keys.entry(key).or_insert_with(is_ours) {
                return;
            }
            let stack = stacks.number(sample.location_id.clone().into_boxed_slice());
            let row = (stack, labels.number(own));
            let none = || vec![0; sample.value.len()].into_boxed_slice();
            let sum = sums.entry(row).or_insert_with(none);
            for (sum, value) in sum.iter_mut().zip(&sample.value) {
                *sum = sum.saturating_add(*value);
            }
        });
        let row = |((stack, labels), values)| OtlpRow {
            stack,
            labels,
            values,
        };
        let functions = profile.function.iter();
        let locations = profile.location.iter();
        EnginePart {
            profile,
            functions: functions.map(|it| (it.id, it)).collect(),
            locations: locations.map(|it| (it.id, it)).collect(),
            facts,
            stacks: stacks.finish(),
            labels: labels.finish(),
            rows: sums.into_iter().map(row).collect(),
        }
    }

    /// The sample types, the one that readers show first before the others.
    fn sample_types(&self) -> Vec<(usize, proto::ValueType)> {
        let default = self.profile.default_sample_type;
        let types = self.profile.sample_type.iter().copied().enumerate();
        let mut types: Vec<_> = types.collect();
        types.sort_by_key(|(_, it)| it.r#type != default);
        types
    }

    fn location(&self, tables: &mut DictionaryTables, id: u64) -> Option<i32> {
        let mut lines = Vec::new();
        for line in &self.locations.get(&id)?.line {
            let function = self.functions.get(&line.function_id)?;
            let mut text = |index| tables.string(self.profile.string(index));
            let function = otlp::Function {
                name_strindex: text(function.name),
                system_name_strindex: 0,
                filename_strindex: text(function.filename),
                start_line: function.start_line,
            };
            lines.push(otlp::Line {
                function_index: tables.function(function),
                line: line.line,
                column: 0,
            });
        }
        Some(tables.location(lines))
    }

    /// The attributes of these labels, and the span that they link to.
    fn attributes(
        &self,
        tables: &mut DictionaryTables,
        labels: &[proto::Label],
    ) -> (Vec<i32>, i32) {
        let value = |wanted: &str| {
            let mut labels = labels.iter();
            let label = labels.find(|label| self.profile.string(label.key) == wanted)?;
            Some(self.profile.string(label.str))
        };
        let ids = value(TRACE_ID).zip(value(SPAN_ID));
        let link = ids.and_then(|(trace, span)| link(trace, span));
        let is_linked = link.is_some();
        let mut attributes = Vec::new();
        for label in labels {
            let key = self.profile.string(label.key);
            if is_linked && [TRACE_ID, SPAN_ID].contains(&key) {
                continue;
            }
            let text = self.profile.string(label.str);
            let value = attribute_value(key, text, label.num);
            attributes.push(tables.attribute(&attribute_key(key), value));
        }
        (attributes, link.map_or(0, |link| tables.link(link)))
    }

    /// A message of these rows: a profile for each sample type with a value.
    fn message(&self, rows: &[OtlpRow]) -> ExportProfilesServiceRequest {
        let mut tables = DictionaryTables::new();
        let (mut stacks, mut labels) = (HashMap::new(), HashMap::new());
        for row in rows {
            stacks.entry(row.stack).or_insert_with(|| {
                let ids = self.stacks.get(row.stack).into_iter().flatten();
                let locations = ids
                    .filter_map(|id| self.location(&mut tables, *id))
                    .collect();
                tables.stack(locations)
            });
            let own = self.labels.get(row.labels).map_or(&[][..], Vec::as_slice);
            let add = || self.attributes(&mut tables, own);
            labels.entry(row.labels).or_insert_with(add);
        }
        let value_type = |tables: &mut DictionaryTables, it: proto::ValueType| otlp::ValueType {
            type_strindex: tables.string(self.profile.string(it.r#type)),
            unit_strindex: tables.string(self.profile.string(it.unit)),
        };
        let mut profiles = Vec::new();
        for (index, sample_type) in self.sample_types() {
            let samples = rows.iter().filter_map(|row| {
                let value = row.values.get(index).copied().filter(|value| *value != 0)?;
                let (attribute_indices, link_index) = labels.get(&row.labels)?;
                Some(otlp::Sample {
                    stack_index: *stacks.get(&row.stack)?,
                    attribute_indices: attribute_indices.clone(),
                    link_index: *link_index,
                    values: vec![value],
                    timestamps_unix_nano: Vec::new(),
                })
            });
            let samples: Vec<_> = samples.collect();
            if samples.is_empty() {
                continue;
            }
            let period_type = self.profile.period_type;
            profiles.push(otlp::Profile {
                sample_type: Some(value_type(&mut tables, sample_type)),
                samples,
                time_unix_nano: unsigned(self.profile.time_nanos),
                duration_nano: unsigned(self.profile.duration_nanos),
                period_type: period_type.map(|it| value_type(&mut tables, it)),
                period: self.profile.period,
                // Of the right length already, so that it counts.
                profile_id: vec![0; 16],
                ..otlp::Profile::default()
            });
        }
        self.request(profiles, tables)
    }

    fn request(
        &self,
        profiles: Vec<otlp::Profile>,
        tables: DictionaryTables,
    ) -> ExportProfilesServiceRequest {
        let scope = InstrumentationScope {
            name: "phpprof".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        ExportProfilesServiceRequest {
            resource_profiles: vec![otlp::ResourceProfiles {
                resource: Some(self.facts.resource.clone()),
                scope_profiles: vec![otlp::ScopeProfiles {
                    scope: Some(scope),
                    profiles,
                    schema_url: String::new(),
                }],
                schema_url: String::new(),
            }],
            dictionary: Some(tables.finish()),
        }
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The messages of an engine, each as `seal` returns it; `seal` also gets its number. Its profiles
/// have no id yet.
pub fn messages<S: SampleSource + ?Sized, T>(
    source: &S,
    facts: &EngineFacts,
    bounds: &PieceBounds,
    mut seal: impl FnMut(ExportProfilesServiceRequest, usize) -> T,
) -> Result<Vec<T>, NotConverted> {
    let part = EnginePart::of(source, facts);
    let mut sealed = Vec::new();
    // A message that does not fit is halved. So the number of waiting ones is at most logarithmic.
    let mut waiting = vec![part.rows.as_slice()];
    while let Some(rows) = waiting.pop() {
        if rows.is_empty() {
            continue;
        }
        let one = rows.len() == 1;
        let made = (one || rows.len() <= bounds.samples).then(|| part.message(rows));
        match made {
            Some(message) if one || message.encoded_len() <= bounds.bytes => {
                if sealed.len() >= MOST_MESSAGES {
                    return Err(NotConverted::Messages(sealed.len() + 1 + waiting.len()));
                }
                let number = sealed.len();
                sealed.push(seal(message, number));
            }
            _ => {
                let (left, right) = rows.split_at(rows.len() / 2);
                waiting.extend([right, left]);
            }
        }
    }
    Ok(sealed)
}

/// The name of a label's attribute: that of OpenTelemetry's semantic conventions (the registry of
/// attributes) if there is one.
fn attribute_key(label: &str) -> Cow<'static, str> {
    match label {
        "pid" => "process.pid".into(),
        "thread" => "thread.id".into(),
        "method" => "http.request.method".into(),
        "route" => "http.route".into(),
        other => format!("phpprof.{other}").into(),
    }
}

/// Ids are numbers there.
fn attribute_value(label: &str, text: &str, number: i64) -> OtlpValue {
    let is_id = ["pid", "thread"].contains(&label);
    let id = text.parse().ok().filter(|_| is_id);
    match (text.is_empty(), id) {
        (true, _) => OtlpValue::Number(number),
        (false, Some(id)) => OtlpValue::Number(id),
        (false, None) => OtlpValue::Text(text.to_owned()),
    }
}

/// The link to a span, if both ids are what W3C Trace Context says.
fn link(trace: &str, span: &str) -> Option<otlp::Link> {
    Some(otlp::Link {
        trace_id: hexadecimal(trace, 16)?,
        span_id: hexadecimal(span, 8)?,
    })
}

fn hexadecimal(text: &str, bytes: usize) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| u8::try_from(digit.to_digit(16)?).ok())
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]);
    (digits.len() == 2 * bytes).then(|| pairs.collect())
}

#[cfg(test)]
mod tests;
