//! `metadata.managedFields`: entries in and out of their JSON form.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fieldset::{FieldSet, FieldsError};

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What tells two entries apart. An applier is the same one in all API versions.
///
/// The order is that of upstream's identifiers, which are JSON texts: of two managers that only
/// differ in the subresource, the one without comes last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerId {
    /// The manager's name.
    pub manager: String,
    /// How it writes.
    pub operation: Operation,
    /// The API version of an updater; empty for appliers.
    pub api_version: String,
    /// The subresource it writes through, or empty.
    pub subresource: String,
}

impl ManagerId {
    /// The identity of a manager that writes in `api_version`.
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let api_version = match operation {
            Operation::Apply => String::new(),
            Operation::Update => api_version.to_owned(),
        };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version,
            subresource: subresource.to_owned(),
        }
    }
}

impl Ord for ManagerId {
    fn cmp(&self, other: &Self) -> Ordering {
        let without_subresource = |id: &Self| id.subresource.is_empty();
        (&self.manager, self.operation, &self.api_version)
            .cmp(&(&other.manager, other.operation, &other.api_version))
            .then_with(|| without_subresource(self).cmp(&without_subresource(other)))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }
}

impl PartialOrd for ManagerId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What one manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// Its fields.
    pub set: FieldSet,
    /// The API version the fields are named in.
    pub api_version: String,
    /// When it last changed anything, RFC 3339.
    pub time: Option<String>,
}

/// All managers of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers(pub BTreeMap<ManagerId, Owned>);

/// Why `managedFields` cannot be read.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum EntriesError {
    /// Not a list of objects.
    #[error("managedFields must be a list of entries")]
    NotEntries,
    /// Neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No API version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// No `fieldsType`.
    #[error("missing fieldsType in managed fields entry {0}")]
    MissingFieldsType(usize),
    /// A `fieldsType` other than `FieldsV1`.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    FieldsType(String, usize),
    /// The fields themselves.
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

impl Managers {
    /// The managers of an object.
    pub fn of(object: &Value) -> Result<Self, EntriesError> {
        Self::decode(
            object
                .pointer("/metadata/managedFields")
                .unwrap_or(&Value::Null),
        )
    }

    /// Reads the value of `managedFields`.
    pub fn decode(entries: &Value) -> Result<Self, EntriesError> {
        let entries = match entries {
            Value::Null => return Ok(Self::default()),
            Value::Array(entries) => entries,
            _ => return Err(EntriesError::NotEntries),
        };
        entries
            .iter()
            .enumerate()
            .map(|(at, entry)| decode_entry(at, entry))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The value of `managedFields`, sorted as upstream sorts it.
    pub fn encode(&self) -> Value {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_cached_key(|(id, owned)| {
            (
                id.operation,
                seconds(owned.time.as_deref()),
                id.manager.clone(),
                owned.api_version.clone(),
                id.subresource.clone(),
            )
        });
        entries
            .into_iter()
            .map(|(id, owned)| encode_entry(id, owned))
            .collect()
    }

    /// Whether nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Merges the oldest updaters of one API version into `bucket` until at most `max` are left.
    pub(super) fn cap_updates(&mut self, max: usize, bucket: &str) {
        let mut updaters: Vec<_> = self
            .0
            .iter()
            .filter(|(id, _)| id.operation == Operation::Update)
            .map(|(id, owned)| (seconds(owned.time.as_deref()), id.clone()))
            .collect();
        updaters.sort();
        let mut count = updaters.len();
        let mut first_of_version: BTreeMap<String, ManagerId> = BTreeMap::new();
        for (_, id) in updaters {
            if count <= max {
                return;
            }
            let Some(owned) = self.0.get(&id).cloned() else {
                continue;
            };
            let version = owned.api_version.clone();
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, id);
                continue;
            };
            let bucket = ManagerId::new(bucket, Operation::Update, &version, "");
            self.fold_into(&bucket, first, &id, owned);
            count -= 1;
        }
    }

    // The bucket starts as the first updater seen in its version, and takes the time of the
    // latest one merged into it.
    fn fold_into(&mut self, bucket: &ManagerId, first: &ManagerId, id: &ManagerId, owned: Owned) {
        if !self.0.contains_key(bucket)
            && let Some(first) = self.0.remove(first)
        {
            self.0.insert(bucket.clone(), first);
        }
        self.0.remove(id);
        match self.0.get_mut(bucket) {
            Some(bucket) => {
                bucket.set = bucket.set.union(&owned.set);
                bucket.time = owned.time;
            }
            None => _ = self.0.insert(bucket.clone(), owned),
        }
    }
}

// Times are RFC 3339 in UTC without fractions, so their texts sort as they do. None is Go's zero.
fn seconds(time: Option<&str>) -> String {
    time.unwrap_or("1970-01-01T00:00:00Z").to_owned()
}

fn decode_entry(at: usize, entry: &Value) -> Result<(ManagerId, Owned), EntriesError> {
    let entry = entry.as_object().ok_or(EntriesError::NotEntries)?;
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(EntriesError::Operation),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(EntriesError::ApiVersion);
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(EntriesError::MissingFieldsType(at)),
        other => return Err(EntriesError::FieldsType(other.to_owned(), at)),
    }
    let owned = Owned {
        set: FieldSet::from_fields_v1(entry.get("fieldsV1").unwrap_or(&Value::Null))?,
        api_version: api_version.to_owned(),
        time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
    };
    Ok((
        ManagerId::new(text("manager"), operation, api_version, text("subresource")),
        owned,
    ))
}

fn encode_entry(id: &ManagerId, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            entry.insert(key.to_owned(), value.into());
        }
    };
    put("manager", &id.manager);
    put("operation", id.operation.name());
    put("apiVersion", &owned.api_version);
    put("time", owned.time.as_deref().unwrap_or_default());
    put("subresource", &id.subresource);
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), owned.set.to_fields_v1());
    Value::Object(entry)
}
