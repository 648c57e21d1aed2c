//! OpenAPI v2 as protobuf: gnostic's `Document`, which client-go reads.
//!
//! A table per message says which key of the JSON is which field. Extensions (`x-…`) and values of any type are YAML text
//! in that format; JSON is YAML.

use serde_json::{Map, Value};

/// What a field holds.
#[derive(Clone, Copy)]
enum Field {
    Text,
    Texts,
    Flag,
    Count,
    Number,
    /// Any value, as text.
    Any,
    Anys,
    One(&'static Message),
    Many(&'static Message),
    /// One of several messages: the numbers of those that wrap it, outermost first, and what is inside.
    Choice(fn(&Value) -> (&'static [u32], Field)),
    Choices(fn(&Value) -> (&'static [u32], Field)),
}

/// A message: its fields by key, where extensions go, and where all other keys go.
struct Message {
    fields: &'static [(&'static str, u32, Field)],
    extensions: u32,
    others: Option<(u32, Field)>,
}

use Field::{Any, Anys, Choice, Choices, Count, Flag, Many, Number, One, Text, Texts};

/// A message that is nothing but a list of entries with names.
const fn named(number: u32, value: Field) -> Message {
    Message {
        fields: &[],
        extensions: 0,
        others: Some((number, value)),
    }
}

const fn plain(fields: &'static [(&'static str, u32, Field)], extensions: u32) -> Message {
    Message {
        fields,
        extensions,
        others: None,
    }
}

static DOCUMENT: Message = plain(
    &[
        ("swagger", 1, Text),
        ("info", 2, One(&INFO)),
        ("host", 3, Text),
        ("basePath", 4, Text),
        ("schemes", 5, Texts),
        ("consumes", 6, Texts),
        ("produces", 7, Texts),
        ("paths", 8, One(&PATHS)),
        ("definitions", 9, One(&DEFINITIONS)),
        ("security", 12, Many(&REQUIREMENT)),
        ("securityDefinitions", 13, One(&SECURITY)),
    ],
    16,
);

static INFO: Message = plain(
    &[
        ("title", 1, Text),
        ("version", 2, Text),
        ("description", 3, Text),
    ],
    7,
);

static PATHS: Message = Message {
    extensions: 1,
    ..named(2, One(&PATH_ITEM))
};

static PATH_ITEM: Message = plain(
    &[
        ("$ref", 1, Text),
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("options", 6, One(&OPERATION)),
        ("head", 7, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Choices(parameter)),
    ],
    10,
);

static OPERATION: Message = plain(
    &[
        ("tags", 1, Texts),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Choices(parameter)),
        ("responses", 9, One(&RESPONSES)),
        ("schemes", 10, Texts),
        ("deprecated", 11, Flag),
        ("security", 12, Many(&REQUIREMENT)),
    ],
    13,
);

static RESPONSES: Message = Message {
    extensions: 2,
    ..named(1, Choice(response))
};

static RESPONSE: Message = plain(
    &[
        ("description", 1, Text),
        ("schema", 2, Choice(wrapped_schema)),
    ],
    5,
);

static BODY_PARAMETER: Message = plain(
    &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Flag),
        ("schema", 5, One(&SCHEMA)),
    ],
    6,
);

/// In headers and paths.
static PLACED_PARAMETER: Message = plain(
    &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("format", 6, Text),
        ("default", 9, Any),
        ("pattern", 16, Text),
        ("uniqueItems", 19, Flag),
        ("enum", 20, Anys),
    ],
    22,
);

/// In queries and forms.
static QUERY_PARAMETER: Message = plain(
    &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("allowEmptyValue", 5, Flag),
        ("type", 6, Text),
        ("format", 7, Text),
        ("default", 10, Any),
        ("pattern", 17, Text),
        ("uniqueItems", 20, Flag),
        ("enum", 21, Anys),
    ],
    23,
);

static REFERENCE: Message = plain(&[("$ref", 1, Text), ("description", 2, Text)], 0);

static DEFINITIONS: Message = named(1, One(&SCHEMA));

static SCHEMA: Message = plain(
    &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Number),
        ("maximum", 7, Number),
        ("exclusiveMaximum", 8, Flag),
        ("minimum", 9, Number),
        ("exclusiveMinimum", 10, Flag),
        ("maxLength", 11, Count),
        ("minLength", 12, Count),
        ("pattern", 13, Text),
        ("maxItems", 14, Count),
        ("minItems", 15, Count),
        ("uniqueItems", 16, Flag),
        ("maxProperties", 17, Count),
        ("minProperties", 18, Count),
        ("required", 19, Texts),
        ("enum", 20, Anys),
        ("additionalProperties", 21, Choice(additional)),
        ("type", 22, Choice(type_item)),
        ("items", 23, Choice(wrapped_schema)),
        ("allOf", 24, Many(&SCHEMA)),
        ("properties", 25, One(&DEFINITIONS)),
        ("discriminator", 26, Text),
        ("readOnly", 27, Flag),
        ("example", 30, Any),
    ],
    31,
);

static SECURITY: Message = named(1, Choice(security));

static API_KEY: Message = plain(
    &[
        ("type", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("description", 4, Text),
    ],
    5,
);

static REQUIREMENT: Message = named(1, Choice(|_| (&[1], Texts)));

fn parameter(parameter: &Value) -> (&'static [u32], Field) {
    if parameter.get("$ref").is_some() {
        return (&[2], One(&REFERENCE));
    }
    match parameter["in"].as_str() {
        Some("body") => (&[1, 1], One(&BODY_PARAMETER)),
        Some("header") => (&[1, 2, 1], One(&PLACED_PARAMETER)),
        Some("formData") => (&[1, 2, 2], One(&QUERY_PARAMETER)),
        Some("path") => (&[1, 2, 4], One(&PLACED_PARAMETER)),
        _ => (&[1, 2, 3], One(&QUERY_PARAMETER)),
    }
}

fn response(response: &Value) -> (&'static [u32], Field) {
    match response.get("$ref") {
        Some(_) => (&[2], One(&REFERENCE)),
        None => (&[1], One(&RESPONSE)),
    }
}

fn wrapped_schema(_: &Value) -> (&'static [u32], Field) {
    (&[1], One(&SCHEMA))
}

fn additional(value: &Value) -> (&'static [u32], Field) {
    match value {
        Value::Bool(_) => (&[2], Flag),
        _ => (&[1], One(&SCHEMA)),
    }
}

fn type_item(value: &Value) -> (&'static [u32], Field) {
    match value {
        Value::Array(_) => (&[1], Texts),
        _ => (&[1], Text),
    }
}

// All that Kubernetes has is a bearer token, which this notation calls an API key.
fn security(_: &Value) -> (&'static [u32], Field) {
    (&[2], One(&API_KEY))
}

/// An OpenAPI v2 document as protobuf.
pub fn encode(document: &Value) -> Vec<u8> {
    message(&DOCUMENT, document)
}

fn message(shape: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let none = Map::new();
    let entries = value.as_object().unwrap_or(&none);
    for (key, number, field) in shape.fields {
        if let Some(value) = entries.get(*key) {
            write(&mut out, *number, field, value);
        }
    }
    for (key, value) in entries {
        let known = shape.fields.iter().any(|(field, ..)| field == key);
        match shape.others {
            _ if known => {}
            _ if key.starts_with("x-") && shape.extensions > 0 => {
                entry(&mut out, shape.extensions, key, &Any, value);
            }
            Some((number, ref field)) => entry(&mut out, number, key, field, value),
            None => {}
        }
    }
    out
}

/// A name and what it stands for.
fn entry(out: &mut Vec<u8>, number: u32, name: &str, field: &Field, value: &Value) {
    let mut pair = Vec::new();
    bytes(&mut pair, 1, name.as_bytes());
    write(&mut pair, 2, field, value);
    bytes(out, number, &pair);
}

fn write(out: &mut Vec<u8>, number: u32, field: &Field, value: &Value) {
    match field {
        Text => text(out, number, value),
        Texts => each(value, |value| text(out, number, value)),
        Flag if value == true => {
            tag(out, number, 0);
            out.push(1);
        }
        Flag => {}
        Count => {
            tag(out, number, 0);
            // Negative numbers are their two's complement, as protobuf has it.
            varint(out, value.as_i64().unwrap_or_default() as u64);
        }
        Number => {
            tag(out, number, 1);
            out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Any => any(out, number, value),
        Anys => each(value, |value| any(out, number, value)),
        One(shape) => bytes(out, number, &message(shape, value)),
        Many(shape) => each(value, |value| bytes(out, number, &message(shape, value))),
        Choice(choose) => chosen(out, number, *choose, value),
        Choices(choose) => each(value, |value| chosen(out, number, *choose, value)),
    }
}

fn chosen(
    out: &mut Vec<u8>,
    number: u32,
    choose: fn(&Value) -> (&'static [u32], Field),
    value: &Value,
) {
    let (wrappers, field) = choose(value);
    let Some((innermost, outer)) = wrappers.split_last() else {
        return write(out, number, &field, value);
    };
    let mut inner = Vec::new();
    write(&mut inner, *innermost, &field, value);
    for wrapper in outer.iter().rev() {
        let mut wrapped = Vec::new();
        bytes(&mut wrapped, *wrapper, &inner);
        inner = wrapped;
    }
    bytes(out, number, &inner);
}

fn each(list: &Value, mut visit: impl FnMut(&Value)) {
    list.as_array().into_iter().flatten().for_each(&mut visit);
}

fn text(out: &mut Vec<u8>, number: u32, value: &Value) {
    let text = value.as_str().unwrap_or_default();
    if !text.is_empty() {
        bytes(out, number, text.as_bytes());
    }
}

fn any(out: &mut Vec<u8>, number: u32, value: &Value) {
    let mut yaml = Vec::new();
    bytes(&mut yaml, 2, format!("{value}\n").as_bytes());
    bytes(out, number, &yaml);
}

fn bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    tag(out, number, 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    varint(out, u64::from(number << 3 | wire_type));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take_varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        while let Some((first, rest)) = bytes.split_first() {
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            shift += 7;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }

    /// Every field with its number: numbers as their bytes, messages and texts as they are.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let tag = take_varint(&mut bytes);
            let value = match tag & 7 {
                0 => vec![u8::try_from(take_varint(&mut bytes)).expect("small")],
                wire_type => {
                    let length = match wire_type {
                        1 => 8,
                        _ => take_varint(&mut bytes),
                    };
                    let (value, rest) = bytes.split_at(usize::try_from(length).expect("small"));
                    bytes = rest;
                    value.to_vec()
                }
            };
            found.push((tag >> 3, value));
        }
        found
    }

    /// What is at the end of a path of field numbers, the last of each.
    fn at(bytes: &[u8], path: &[u64]) -> Vec<u8> {
        path.iter().fold(bytes.to_vec(), |bytes, number| {
            let mut found = fields(&bytes).into_iter().rev();
            let wanted = found.find(|(found, _)| found == number);
            wanted.unwrap_or_else(|| panic!("no field {number}")).1
        })
    }

    #[test]
    fn a_document_has_gnostics_numbers() {
        let document = json!({
            "swagger": "2.0",
            "info": {"title": "t", "version": "v"},
            "paths": {"/a": {"get": {
                "operationId": "o", "deprecated": true, "consumes": ["*/*"],
                "parameters": [{"in": "query", "name": "q"}, {"in": "body", "name": "b", "schema": {"$ref": "r"}}],
                "responses": {"200": {"description": "ok", "schema": {"type": "string"}}},
                "x-kubernetes-action": "get",
            }, "parameters": [{"in": "path", "name": "p", "uniqueItems": true}]}},
            "definitions": {"d": {"description": "a thing"}},
            "securityDefinitions": {"s": {"type": "apiKey"}},
            "security": [{"s": []}],
        });
        let bytes = encode(&document);
        let get = [8, 2, 2, 2];
        let cases: [(&[u64], &[u8]); 16] = [
            (&[1], b"2.0"),
            (&[2, 1], b"t"),
            (&[8, 2, 1], b"/a"),
            (&[8, 2, 2, 9, 1, 2, 4, 4], b"p"),
            (&[8, 2, 2, 9, 1, 2, 4, 19], &[1]),
            (&[9, 1, 1], b"d"),
            (&[9, 1, 2, 4], b"a thing"),
            (&[13, 1, 2, 2, 1], b"apiKey"),
            (&[12, 1, 1], b"s"),
            (&[8, 2, 2, 2, 5], b"o"),
            (&[8, 2, 2, 2, 11], &[1]),
            (&[8, 2, 2, 2, 7], b"*/*"),
            (&[8, 2, 2, 2, 8, 1, 1, 5, 1], b"r"),
            (&[8, 2, 2, 2, 9, 1, 1], b"200"),
            (&[8, 2, 2, 2, 9, 1, 2, 1, 2, 1, 22, 1], b"string"),
            (&[8, 2, 2, 2, 13, 2, 2], b"\"get\"\n"),
        ];
        for (path, expected) in cases {
            assert_eq!(at(&bytes, path), expected, "{path:?}");
        }
        let parameters = fields(&at(&bytes, &get));
        let first = parameters.iter().find(|(number, _)| *number == 8);
        let first = &first.expect("a parameter").1;
        assert_eq!(at(first, &[1, 2, 3, 4]), b"q");
    }

    #[test]
    fn a_schema_keeps_everything_it_says() {
        let schema = json!({"type": ["object"], "additionalProperties": {"type": "string"}, "required": ["a"],
            "items": {"$ref": "#/definitions/x"}, "maxLength": 30, "maximum": 1.0, "enum": [1, "b"],
            "properties": {"a": {"format": "int32"}}, "x-kubernetes-y": [{"a": 1}]});
        let bytes = message(&SCHEMA, &schema);
        let cases: [(&[u64], &[u8]); 10] = [
            (&[7], &1.0_f64.to_le_bytes()),
            (&[11], &[30]),
            (&[19], b"a"),
            (&[20, 2], b"\"b\"\n"),
            (&[21, 1, 22, 1], b"string"),
            (&[22, 1], b"object"),
            (&[23, 1, 1], b"#/definitions/x"),
            (&[25, 1, 2, 2], b"int32"),
            (&[31, 1], b"x-kubernetes-y"),
            (&[31, 2, 2], b"[{\"a\":1}]\n"),
        ];
        for (path, expected) in cases {
            assert_eq!(at(&bytes, path), expected, "{path:?}");
        }
        let any = message(&SCHEMA, &json!({"additionalProperties": true}));
        assert_eq!(at(&any, &[21, 2]), [1]);
    }
}
