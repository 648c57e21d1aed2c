//! Random objects for property tests, drawn from the table: any type, any seed, always the same.
//!
//! The objects are in normal form and survive a trip through protobuf, so what a test sees change
//! is the fault of what it tests. Two things that protobuf cannot tell apart are therefore never
//! drawn: an empty list or map without `omitempty`, and an empty group of strings.

use serde_json::{Map, Value, json};

use crate::normalize::{json_schema, normalize};
use crate::schema::{Field, FieldType, Scalar, TypeRef};

/// Below this depth of nesting only what must be there is filled in.
const MAX_DEPTH: usize = 12;

/// A small pseudo-random generator (SplitMix64), good enough to vary test objects.
#[derive(Debug, Clone)]
pub struct Seed(u64);

impl Seed {
    /// A generator that always yields the same sequence for the same seed.
    pub fn new(seed: u64) -> Self {
        Seed(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = usize::try_from(self.below(choices.len() as u64)).unwrap_or(0);
        choices[index]
    }
}

/// A random object of `ty`, in normal form.
pub fn object(ty: TypeRef, seed: &mut Seed) -> Value {
    let value = Value::Object(fields(ty, seed, 0));
    normalize(ty, value)
        .expect("generated values fit their types")
        .value
}

fn fields(ty: TypeRef, seed: &mut Seed, depth: usize) -> Map<String, Value> {
    let mut map = Map::new();
    for field in ty.get().json_fields() {
        if wanted(field, seed, depth) {
            map.insert(field.name.to_owned(), value(&field.ty, seed, depth + 1));
        }
    }
    map
}

/// Deeper objects are sparser, so that their size stays bounded.
fn wanted(field: &Field, seed: &mut Seed, depth: usize) -> bool {
    let on_the_wire = field.number > 0;
    on_the_wire && depth < MAX_DEPTH && seed.one_in(1 + depth as u64)
}

fn value(ty: &FieldType, seed: &mut Seed, depth: usize) -> Value {
    match ty {
        FieldType::Scalar(scalar) => scalar_value(*scalar, seed, depth),
        FieldType::Object(ty) => Value::Object(fields(*ty, seed, depth)),
        FieldType::List(element) => {
            let count = 1 + seed.below(2);
            (0..count).map(|_| value(element, seed, depth)).collect()
        }
        FieldType::Map(element) => {
            let count = 1 + seed.below(3);
            let entries = (0..count).map(|_| (text(seed), value(element, seed, depth)));
            Value::Object(entries.collect())
        }
    }
}

fn scalar_value(scalar: Scalar, seed: &mut Seed, depth: usize) -> Value {
    match scalar {
        Scalar::String => Value::String(text(seed)),
        Scalar::Int32 => Value::from(seed.pick(&[
            0,
            1,
            -1,
            80,
            65_535,
            i64::from(i32::MAX),
            i64::from(i32::MIN),
        ])),
        Scalar::Int64 => Value::from(seed.pick(&[0, 1, -1, 1 << 40, i64::MAX, i64::MIN])),
        Scalar::Uint32 => Value::from(seed.pick(&[0, 1, u32::MAX])),
        Scalar::Uint64 => Value::from(seed.pick(&[0, 1, u64::MAX])),
        Scalar::Bool => Value::Bool(seed.one_in(2)),
        Scalar::Bytes => Value::from(seed.pick(&["", "AA==", "aGVsbG8=", "/+8="])),
        Scalar::Double => Value::from(seed.pick(&[0.0, 1.0, -2.5, 1e-9, 1e300])),
        Scalar::Quantity => {
            Value::from(seed.pick(&["0", "1", "100m", "1500m", "64Mi", "1k", "12e6", "-3", "1n"]))
        }
        Scalar::IntOrString if seed.one_in(2) => Value::from(seed.pick(&["", "25%", "http"])),
        Scalar::IntOrString => Value::from(seed.pick(&[0, 8080, -1])),
        Scalar::Time => Value::from(seed.pick(&["2024-02-29T23:59:59Z", "1969-12-31T23:59:59Z"])),
        Scalar::MicroTime => {
            Value::from(seed.pick(&["2024-02-29T23:59:59.000001Z", "1970-01-01T00:00:00.000000Z"]))
        }
        Scalar::Duration => Value::from(seed.pick(&["0s", "1h30m0s", "-1.5s"])),
        Scalar::Raw | Scalar::Fields | Scalar::Json | Scalar::Any => raw(seed),
        Scalar::StringsMessage => json!([text(seed)]),
        Scalar::SchemaOrBool if seed.one_in(2) => Value::Bool(seed.one_in(2)),
        Scalar::SchemaOrArray if seed.one_in(2) => json!([schema(seed, depth)]),
        Scalar::SchemaOrStrings if seed.one_in(2) => json!([text(seed)]),
        Scalar::SchemaOrBool | Scalar::SchemaOrArray | Scalar::SchemaOrStrings => {
            schema(seed, depth)
        }
    }
}

fn schema(seed: &mut Seed, depth: usize) -> Value {
    Value::Object(fields(json_schema(), seed, depth + 1))
}

fn raw(seed: &mut Seed) -> Value {
    match seed.below(3) {
        0 => json!({"kind": text(seed), "n": [1, -2, 0.5, null, true]}),
        1 => json!({}),
        _ => json!({"nested": {"text": text(seed)}}),
    }
}

fn text(seed: &mut Seed) -> String {
    let word = seed.pick(&[
        "",
        "a",
        "web",
        "näme",
        "x/y.z",
        "\u{1F600}",
        "line\nbreak",
        "\"q\"\\",
    ]);
    format!("{word}{}", seed.below(100))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::schema::{kind, lookup};

    #[test]
    fn the_same_seed_gives_the_same_object() {
        let pod = kind("", "v1", "Pod").unwrap();
        let draw = |seed| object(pod, &mut Seed::new(seed));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn every_field_is_drawn_sooner_or_later() {
        let container = lookup("core.v1.Container").unwrap();
        let drawn: Vec<_> = (0..8)
            .map(|s| object(container, &mut Seed::new(s)))
            .collect();
        for field in container.get().json_fields() {
            assert!(
                drawn.iter().any(|o| o.get(field.name).is_some()),
                "{}",
                field.name
            );
        }
    }
}
