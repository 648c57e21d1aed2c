//! Reading a document field by field; whatever was not read is unknown, and an error with its path.

use std::time::Duration;

use kube_kit::duration::go;
use serde_json::{Map, Value};

use super::ConfigurationError;

type Read<T> = Result<T, ConfigurationError>;

/// The fields of an object, and which of them were asked for.
pub(super) struct Fields<'a> {
    path: String,
    object: Option<&'a Map<String, Value>>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(value: &'a Value, path: &str) -> Read<Fields<'a>> {
        let object = match value {
            Value::Null => None,
            Value::Object(object) => Some(object),
            _ => return Err(wrong(path, "must be an object")),
        };
        Ok(Fields {
            path: path.to_owned(),
            object,
            known: Vec::new(),
        })
    }

    pub(super) fn get(&mut self, field: &'static str) -> Option<&'a Value> {
        self.known.push(field);
        let value = self.object?.get(field)?;
        (!value.is_null()).then_some(value)
    }

    /// A field that may be there and means nothing.
    pub(super) fn ignore(&mut self, field: &'static str) {
        self.known.push(field);
    }

    pub(super) fn path(&self, field: &str) -> String {
        match self.path.is_empty() {
            true => field.to_owned(),
            false => format!("{}.{field}", self.path),
        }
    }

    pub(super) fn wrong(&self, field: &str, cause: &str) -> ConfigurationError {
        wrong(&self.path(field), cause)
    }

    fn read<T>(
        &mut self,
        field: &'static str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Read<Option<T>> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let found = read(value);
        found.map(Some).ok_or_else(|| self.wrong(field, what))
    }

    pub(super) fn text(&mut self, field: &'static str) -> Read<Option<String>> {
        self.read(field, "must be a text", |v| v.as_str().map(str::to_owned))
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Read<Option<bool>> {
        self.read(field, "must be true or false", Value::as_bool)
    }

    pub(super) fn number(&mut self, field: &'static str) -> Read<Option<i64>> {
        self.read(field, "must be a whole number", Value::as_i64)
    }

    /// Zero means that the scheduler decides, and so does nothing.
    pub(super) fn percentage(&mut self, field: &'static str) -> Read<Option<u8>> {
        let number = self.number(field)?.filter(|number| *number != 0);
        match number.map(u8::try_from) {
            None => Ok(None),
            Some(Ok(number)) if number <= 100 => Ok(Some(number)),
            Some(_) => Err(self.wrong(field, "not in valid range [0-100]")),
        }
    }

    pub(super) fn duration(&mut self, field: &'static str) -> Read<Option<Duration>> {
        let what = "must be a duration such as 15s";
        let text = self.text(field)?;
        let parsed =
            text.map(|text| go::parse_unsigned(&text).map_err(|_| self.wrong(field, what)));
        parsed.transpose()
    }

    pub(super) fn object(&mut self, field: &'static str) -> Read<Option<Fields<'a>>> {
        let path = self.path(field);
        let value = self.get(field);
        value.map(|value| Fields::of(value, &path)).transpose()
    }

    pub(super) fn list(&mut self, field: &'static str) -> Read<Option<Vec<(&'a Value, String)>>> {
        let path = self.path(field);
        let list = self.read(field, "must be a list", Value::as_array)?;
        Ok(list.map(|list| {
            let numbered = list.iter().enumerate();
            numbered
                .map(|(at, value)| (value, format!("{path}[{at}]")))
                .collect()
        }))
    }

    /// Whatever was not asked for is unknown.
    pub(super) fn done(self) -> Read<()> {
        let mut fields = self.object.into_iter().flatten();
        let unknown = fields.find(|(field, _)| !self.known.contains(&field.as_str()));
        match unknown {
            Some((field, _)) => Err(self.wrong(field, "unknown field")),
            None => Ok(()),
        }
    }
}

pub(super) fn wrong(path: &str, cause: &str) -> ConfigurationError {
    ConfigurationError::Field {
        path: path.to_owned(),
        cause: cause.to_owned(),
    }
}
