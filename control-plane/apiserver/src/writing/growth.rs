//! What a list of any field costs: four times the list, about four times the work.
//!
//! A body is at most three mebibytes, so work in proportion to it is bounded; work that grows with its square is not.
//! The table of types says which lists there are, and each is made long once, on its way through everything that
//! touches a write.

use std::collections::HashSet;
use std::hint::black_box;

use kinds::defined::ObjectType;
use kinds::resources::{self, Resource};
use objects::decode::{ContentType, GroupVersionKind};
use objects::managed;
use objects::schema::{Field, FieldType, Scalar, TypeRef};
use serde_json::{Map, Value, json};

use crate::status::ApiError;
use crate::writing::rest::tracked_fields;

/// How long lists are: once, and four times that.
const SIZES: [usize; 2] = [200, 800];
/// Four times the list may cost this much more: sorting and noise are allowed, a square (16) is not.
const MOST: f64 = 9.0;
/// What costs less than this many nanoseconds for a long list is not looked at: it is mostly noise.
const FLOOR: u64 = 7_000_000;

/// Processor time of this thread: a busy machine does not change it much.
fn nanoseconds() -> u64 {
    // The kernel brings the figure up to date when a thread lets go of its processor.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let first = text.split(' ').next().expect("three figures");
    first.parse().expect("a number")
}

fn cost(work: &dyn Fn()) -> u64 {
    let started = nanoseconds();
    work();
    nanoseconds() - started
}

/// A long list somewhere in an object of a resource.
struct Place {
    resource: &'static Resource,
    /// Fields that lead to it; lists on the way have one element.
    path: Vec<&'static Field>,
}

impl Place {
    fn name(&self) -> String {
        let fields: Vec<&str> = self.path.iter().map(|field| field.name).collect();
        format!("{} {}", self.resource.kind, fields.join("."))
    }

    fn object(&self, elements: &[Value]) -> Value {
        let last = self.path.last().expect("a path has a field");
        let long = match &last.ty {
            FieldType::Map(_) => {
                let entries = elements.iter().enumerate();
                let entries = entries.map(|(i, value)| (format!("k{i}"), value.clone()));
                Value::Object(entries.collect())
            }
            _ => Value::from(elements),
        };
        let fold = |inner: Value, field: &&'static Field| {
            let mut outer = Map::new();
            outer.insert(field.name.to_owned(), inner);
            Value::Object(outer)
        };
        let mut value = fold(long, last);
        for field in self.path.iter().rev().skip(1) {
            value = match &field.ty {
                FieldType::List(_) => fold(json!([value]), field),
                FieldType::Map(_) => fold(json!({"k": value}), field),
                _ => fold(value, field),
            };
        }
        value["apiVersion"] = self.resource.gv.to_string().into();
        value["kind"] = self.resource.kind.into();
        value["metadata"]["name"] = "a".into();
        value
    }
}

fn element_type(field: &Field) -> Option<&FieldType> {
    match &field.ty {
        FieldType::List(element) | FieldType::Map(element) => Some(element),
        _ => None,
    }
}

fn built_in(resource: &Resource) -> TypeRef {
    match &resource.ty {
        ObjectType::BuiltIn(ty) => *ty,
        ObjectType::Defined(_) => unreachable!("the table has built-in types only"),
    }
}

fn type_of(ty: &FieldType) -> Option<TypeRef> {
    match ty {
        FieldType::Object(ty) => Some(*ty),
        FieldType::List(element) | FieldType::Map(element) => type_of(element),
        FieldType::Scalar(_) => None,
    }
}

/// Every list and map of every type, at the first place it is found.
fn places() -> Vec<Place> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for resource in resources::all() {
        let mut todo = vec![(built_in(resource), Vec::new())];
        while let Some((ty, path)) = todo.pop() {
            if !seen.insert((ty, path.is_empty())) || path.len() > 8 {
                continue;
            }
            for field in &ty.get().fields {
                let mut path: Vec<&'static Field> = path.clone();
                if !field.inline {
                    path.push(field);
                }
                if element_type(field).is_some() {
                    let path = path.clone();
                    found.push(Place { resource, path });
                }
                todo.extend(type_of(&field.ty).map(|ty| (ty, path)));
            }
        }
    }
    found
}

/// A value of a type, the `n`th of many; nothing where there is no simple one.
fn sample(ty: &FieldType, n: usize) -> Option<Value> {
    Some(match ty {
        FieldType::Scalar(scalar) => match scalar {
            Scalar::String => format!("x{n}").into(),
            Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 => (n + 1).into(),
            Scalar::IntOrString => (n + 1).into(),
            Scalar::Bool => true.into(),
            Scalar::Quantity => "1".into(),
            Scalar::Bytes => "eA==".into(),
            Scalar::Time => "2030-01-01T00:00:00Z".into(),
            _ => return None,
        },
        FieldType::Object(ty) => {
            let fields = ty.get().fields.iter().filter(|field| !field.inline);
            let simple = fields.filter(|field| matches!(field.ty, FieldType::Scalar(_)));
            let filled = simple.filter_map(|field| Some((field.name, sample(&field.ty, n)?)));
            Value::Object(
                filled
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            )
        }
        FieldType::List(_) | FieldType::Map(_) => return None,
    })
}

/// Everything that touches a write, for one object and the same with its list turned round.
fn steps(resource: &'static Resource, object: &Value, turned: &Value) -> Vec<(&'static str, u64)> {
    let (ty, text) = (built_in(resource), object.to_string());
    let gvk = GroupVersionKind::new(resource.gv.group, resource.gv.version, resource.kind);
    let decode = |content, bytes: &[u8]| {
        objects::decode::decode(content, bytes, Some(&gvk), objects::decode::builtin)
    };
    let Ok(decoded) = decode(ContentType::Json, text.as_bytes()) else {
        return Vec::new();
    };
    let Ok(turned) = decode(ContentType::Json, turned.to_string().as_bytes()) else {
        return Vec::new();
    };
    let (object, turned) = (decoded.object, turned.object);
    let protobuf =
        objects::protobuf::encode_object(ty, &resource.gv.to_string(), resource.kind, &object);
    let yaml = objects::yaml::to_string(&object);
    let mut defaulted = object.clone();
    kinds::defaults::apply(ty, &mut defaulted);
    let filter = tracked_fields(resource, "");
    let api_version = resource.gv.to_string();
    let request = managed::Request {
        manager: "m",
        api_version: &api_version,
        kind: resource.kind,
        subresource: "",
        time: "2030-01-01T00:00:00Z",
        force: true,
        reset: false,
        filter: &filter,
    };
    let invalid = |errors: kinds::field::Errors| {
        black_box(ApiError::invalid("", resource.kind, "a", &errors).to_value());
    };
    let work: [(&'static str, &dyn Fn()); 9] = [
        ("JSON", &|| {
            drop(black_box(decode(ContentType::Json, text.as_bytes())))
        }),
        ("YAML", &|| {
            // One reader for all types, and slow: one kind shows it.
            if resource.kind == "ConfigMap" {
                drop(black_box(decode(ContentType::Yaml, yaml.as_bytes())));
            }
        }),
        ("protobuf", &|| {
            if let Ok(bytes) = &protobuf {
                drop(black_box(decode(ContentType::Protobuf, bytes)));
            }
        }),
        ("defaults", &|| {
            let mut object = object.clone();
            kinds::defaults::apply(ty, &mut object);
            kinds::strategy::prepare_create(resource, black_box(&mut object));
        }),
        ("validation", &|| {
            invalid(kinds::validation::create(resource, &defaulted));
            invalid(kinds::validation::update(resource, &defaulted, &turned, ""));
        }),
        ("warnings", &|| {
            drop(black_box(kinds::warnings::of(resource, &defaulted, None)))
        }),
        ("strategic merge", &|| {
            drop(black_box(objects::strategic::strategic_patch(
                ty, &object, &turned,
            )));
        }),
        ("apply", &|| {
            let live = managed::apply(ty, None, &object, &request, Ok);
            let Ok(live) = live else { return };
            let mut new = turned.clone();
            managed::update(ty, Some(&live), &mut new, &request);
            drop(black_box(managed::apply(
                ty,
                Some(&new),
                &turned,
                &request,
                Ok,
            )));
        }),
        ("print", &|| {
            let now = jiff::Timestamp::UNIX_EPOCH;
            drop(black_box(kinds::print::cells(resource, &object, now)));
        }),
    ];
    work.map(|(name, work)| (name, cost(work))).to_vec()
}

fn costs(place: &Place, size: usize, is_empty: bool) -> Vec<(&'static str, u64)> {
    let element = element_type(place.path.last().expect("a field")).expect("a list");
    let one = |n| match (is_empty, element) {
        (true, FieldType::Object(_)) => Some(json!({})),
        (true, _) => Some("".into()),
        (false, element) => sample(element, n),
    };
    let Some(mut elements) = (0..size).map(one).collect::<Option<Vec<Value>>>() else {
        return Vec::new();
    };
    let object = place.object(&elements);
    elements.reverse();
    steps(place.resource, &object, &place.object(&elements))
}

/// Which steps grow faster than they should between these sizes.
fn suspects(place: &Place, is_empty: bool) -> Vec<(&'static str, f64)> {
    let [small, large] = SIZES.map(|size| costs(place, size, is_empty));
    let pairs = small.into_iter().zip(large);
    let ratio = |(few, many): (u64, u64)| many as f64 / few.max(1) as f64;
    pairs
        .filter(|((_, few), (_, many))| *many > FLOOR && ratio((*few, *many)) > MOST)
        .map(|((name, few), (_, many))| (name, ratio((few, many))))
        .collect()
}

#[test]
fn four_times_the_list_is_about_four_times_the_work() {
    let mut found = Vec::new();
    let places = places();
    assert!(places.len() > 300, "the table of types is read");
    for place in &places {
        for is_empty in [false, true] {
            // A short look at all, a long one at those that are not obviously fine.
            let short = costs(place, SIZES[0], is_empty);
            if short.iter().all(|(_, cost)| *cost < FLOOR / 16) {
                continue;
            }
            let mut slow = suspects(place, is_empty);
            if !slow.is_empty() {
                let confirmed = suspects(place, is_empty);
                slow.retain(|(name, _)| confirmed.iter().any(|(other, _)| other == name));
            }
            found.extend(slow.into_iter().map(|(name, ratio)| {
                let line = format!("{} ({name}): {ratio:.1} times", place.name());
                eprintln!("{line}");
                line
            }));
        }
    }
    assert!(found.is_empty(), "grows too fast: {found:#?}");
}
