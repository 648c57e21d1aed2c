//! The columns of `kubectl get` and what stands in them.

use std::borrow::Cow;

use jiff::Timestamp;
use kinds::print::Column;
use serde_json::Value;

use super::text;
use crate::paths::JsonPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellType {
    Text,
    Integer,
    Number,
    Boolean,
    Date,
}

/// How a version's objects are shown.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) all: Vec<Column>,
    cells: Vec<(JsonPath, CellType)>,
}

impl Columns {
    /// From `additionalPrinterColumns`.
    pub(super) fn read(declared: &Value) -> Columns {
        let (all, cells) = columns(declared.as_array());
        Columns { all, cells }
    }

    /// The cells of one object, one for each column.
    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = object["metadata"]["name"].clone();
        let cells = self.cells.iter().map(|(path, ty)| {
            let found = path.find(object).into_iter().next();
            cell(found, *ty, now)
        });
        std::iter::once(name).chain(cells).collect()
    }
}

fn columns(declared: Option<&Vec<Value>>) -> (Vec<Column>, Vec<(JsonPath, CellType)>) {
    let mut columns = vec![Column {
        name: Cow::Borrowed("Name"),
        ty: Cow::Borrowed("string"),
        format: Cow::Borrowed("name"),
        description: Cow::Borrowed(
            "The name of the object, which no other object of its kind has in its namespace.",
        ),
        priority: 0,
    }];
    let age = serde_json::json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": "Time since the object was created."}]);
    let declared = match declared.filter(|all| !all.is_empty()) {
        Some(declared) => declared.as_slice(),
        None => age.as_array().map_or(&[][..], Vec::as_slice),
    };
    let mut cells = Vec::new();
    for column in declared {
        // Upstream ends the list at a path that it cannot read.
        let path = text(column, "jsonPath");
        let Ok(read) = JsonPath::parse(path) else {
            break;
        };
        let ty = match text(column, "type") {
            "integer" => CellType::Integer,
            "number" => CellType::Number,
            "boolean" => CellType::Boolean,
            "date" => CellType::Date,
            _ => CellType::Text,
        };
        let description = match text(column, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            own => own.to_owned(),
        };
        columns.push(Column {
            name: text(column, "name").to_owned().into(),
            ty: text(column, "type").to_owned().into(),
            format: text(column, "format").to_owned().into(),
            description: description.into(),
            priority: column["priority"]
                .as_i64()
                .and_then(|p| i32::try_from(p).ok())
                .unwrap_or(0),
        });
        cells.push((read, ty));
    }
    (columns, cells)
}

// What is of another type than its column says is not shown; text shows everything.
fn cell(found: Option<&Value>, ty: CellType, now: Timestamp) -> Value {
    let Some(value) = found else {
        return Value::Null;
    };
    match (ty, value) {
        (CellType::Text, Value::String(text)) => text.as_str().into(),
        (CellType::Text, Value::Null) => Value::Null,
        (CellType::Text, other) => other.to_string().into(),
        (CellType::Integer, Value::Number(n)) => match (n.as_i64(), n.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(number)) => Value::from(number.trunc()),
            _ => Value::Null,
        },
        (CellType::Number, Value::Number(n)) => n.as_f64().map_or(Value::Null, Value::from),
        (CellType::Boolean, Value::Bool(b)) => (*b).into(),
        (CellType::Date, Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => kube_kit::duration::age(text, now).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}
