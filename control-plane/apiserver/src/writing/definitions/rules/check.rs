//! What is wrong with the rules of a definition: they compile, see what they may, and cost what they may.

use std::collections::BinaryHeap;

use kinds::field::{Errors, FieldError, Reason};
use serde_json::Value;

use super::{Own, Rule, Tree, failure, shape};

/// What one rule may cost at most, over all the places of an object that it stands at, and all rules of a schema.
const PER_RULE: u64 = 10_000_000;
const PER_SCHEMA: u64 = 100_000_000;
/// So many of the dearest rules are named, if they take a hundredth of what all may.
const NAMED: usize = 4;

/// What is wrong with the rules of a definition.
pub(crate) fn check(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let schemas = |definition: &Value| -> Vec<(Value, Value)> {
        let versions = definition["spec"]["versions"].as_array();
        let schema = |v: &Value| (v["name"].clone(), v["schema"]["openAPIV3Schema"].clone());
        versions.into_iter().flatten().map(schema).collect()
    };
    let present = schemas(definition);
    let known = old.map(schemas).unwrap_or_default();
    // Upstream hoists what all versions share, and names it so.
    let shared = present.windows(2).all(|pair| pair[0].1 == pair[1].1);
    for (index, version) in present.iter().enumerate() {
        if known.contains(version) {
            continue;
        }
        let path = match shared {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{index}].schema.openAPIV3Schema"),
        };
        check_schema(&version.1, path, errors);
        if shared {
            return;
        }
    }
}

fn check_schema(schema: &Value, path: String, errors: &mut Errors) {
    let before = errors.0.len();
    defaults(schema, &path, errors);
    if errors.0.len() > before {
        return;
    }
    let mut check = Check::default();
    let root = Place {
        cardinality: Some(1),
        uncorrelated: None,
    };
    check.node(schema, true, &path, &root);
    errors.0.append(&mut check.found);
    if check.total <= PER_SCHEMA {
        return;
    }
    let mut dearest = check.dearest.into_sorted_vec();
    dearest.reverse();
    for (_, field) in dearest.into_iter().take(NAMED) {
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.0.push(forbidden(field, why));
    }
    let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
    errors
        .0
        .push(forbidden(path, &exceeds(what, check.total, PER_SCHEMA)));
}

// What rules have against defaults, as values that come and as values that stay; where they have something, upstream looks at
// the rules no further. Nor does it look at defaults below keys that are not known.
fn defaults(schema: &Value, path: &str, errors: &mut Errors) {
    let default = &schema["default"];
    if !default.is_null()
        && let Some(tree) = Tree::read(schema, false)
    {
        let at = format!("{path}.default");
        let mut found = tree.check_at(default, Some(default), &at);
        if found.is_empty() {
            found = tree.check_at(default, None, &at);
        }
        errors.0.extend(found);
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        defaults(items, &format!("{path}.items"), errors);
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        defaults(below, &format!("{path}.properties[{name}]"), errors);
    }
}

/// What is above a node.
struct Place<'p> {
    /// How often the node may stand in one object, if that is bounded.
    cardinality: Option<u64>,
    /// The outermost node above whose parts cannot be told apart between two states of an object.
    uncorrelated: Option<&'p str>,
}

#[derive(Default)]
struct Check {
    found: Vec<FieldError>,
    total: u64,
    /// What takes a hundredth of the budget at least.
    dearest: BinaryHeap<(u64, String)>,
}

impl Check {
    fn node(&mut self, schema: &Value, root: bool, path: &str, place: &Place<'_>) {
        if !schema.is_object() {
            return;
        }
        let within = place.uncorrelated.or(Some(path));
        let below = |keyed: bool| Place {
            cardinality: place
                .cardinality
                .zip(elements(schema))
                .map(|(outer, inner)| outer.saturating_mul(inner)),
            uncorrelated: if keyed { place.uncorrelated } else { within },
        };
        let granular = below(schema["x-kubernetes-map-type"] != "atomic");
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            self.node(
                schema,
                false,
                &format!("{path}.properties[{name}]"),
                &granular,
            );
        }
        let additional = format!("{path}.additionalProperties");
        self.node(
            &schema["additionalProperties"],
            false,
            &additional,
            &granular,
        );
        let keyed = below(schema["x-kubernetes-list-type"] == "map");
        self.node(&schema["items"], false, &format!("{path}.items"), &keyed);
        if let Some(own) = Own::read(schema, root) {
            for (index, rule) in own.rules.iter().enumerate() {
                let path = format!("{path}.x-kubernetes-validations[{index}]");
                let written = &schema["x-kubernetes-validations"][index];
                self.rule(&own, rule, written, &path, place);
            }
        }
    }

    fn rule(&mut self, own: &Own, rule: &Rule, written: &Value, path: &str, place: &Place<'_>) {
        let shown = Value::String(rule.text.clone());
        let field = format!("{path}.rule");
        match &rule.program {
            Err(why) => self.wrong(field.clone(), written, why),
            Ok(program) => {
                let often = place.cardinality.unwrap_or(own.shape.cardinality());
                let cost = program.estimate(&own.shape).saturating_mul(often);
                self.charge("estimated rule cost", cost, field.clone());
            }
        }
        let field_of_message = format!("{path}.messageExpression");
        match &rule.message_program {
            None => {}
            Some(Err(why)) => self.wrong(field_of_message, written, why),
            Some(Ok(program)) => {
                let cost = program.estimate(&own.shape);
                self.charge("estimated messageExpression cost", cost, field_of_message);
            }
        }
        if let (true, Some(within)) = (rule.transition, place.uncorrelated) {
            let why = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
            );
            self.found
                .push(failure(Reason::Invalid, field, &shown, &why));
        } else if !rule.transition && written.get("optionalOldSelf").is_some_and(|o| !o.is_null()) {
            let field = format!("{path}.optionalOldSelf");
            let why = "may not be set if oldSelf is not used in rule";
            let shown = &written["optionalOldSelf"];
            self.found.push(failure(Reason::Invalid, field, shown, why));
        }
    }

    // The rule is shown whole, as Go's types have it.
    fn wrong(&mut self, field: String, rule: &Value, why: &str) {
        let text = |name: &str| rule[name].as_str().unwrap_or_default();
        let parts = [
            ("Rule", Value::from(text("rule"))),
            ("Message", text("message").into()),
            ("MessageExpression", text("messageExpression").into()),
            ("Reason", rule["reason"].clone()),
            ("FieldPath", text("fieldPath").into()),
            ("OptionalOldSelf", rule["optionalOldSelf"].clone()),
        ];
        let parts = parts.map(|(name, value)| format!("\"{name}\":{value}"));
        let shown = parts.join(",");
        // Go writes what could be taken for a page's marks by its number.
        let shown = shown
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026");
        self.found.push(FieldError {
            reason: Reason::Invalid,
            field,
            message: format!("Invalid value: {{{shown}}}: {why}"),
        });
    }

    fn charge(&mut self, what: &str, cost: u64, field: String) {
        if cost > PER_RULE {
            let why = exceeds(what, cost, PER_RULE);
            self.found.push(forbidden(field.clone(), &why));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= PER_SCHEMA / 100 {
            self.dearest.push((cost, field));
        }
    }
}

// How many values a schema may have below it at most, if that is bounded.
fn elements(schema: &Value) -> Option<u64> {
    match schema["type"].as_str() {
        Some("array") => shape::bound(schema, "maxItems"),
        Some("object") if !schema["additionalProperties"].is_null() => {
            shape::bound(schema, "maxProperties")
        }
        _ => Some(1),
    }
}

fn forbidden(field: String, why: &str) -> FieldError {
    failure(Reason::Forbidden, field, &Value::Null, why)
}

fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        far if far > 100.0 => "more than 100x".to_owned(),
        near if near < 1.5 => format!("{near:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, \
         and maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn estimate(mut schema: Value, rule: &str) -> u64 {
        schema["x-kubernetes-validations"] = json!([{ "rule": rule }]);
        let own = Own::read(&schema, false).expect("has rules");
        let program = own.rules[0].program.as_ref().expect(rule);
        program.estimate(&own.shape)
    }

    fn scalar(ty: &str) -> Value {
        match ty {
            "int-or-string" => json!({"x-kubernetes-int-or-string": true}),
            "duration" | "date" | "date-time" => json!({"type": "string", "format": ty}),
            ty => json!({"type": ty}),
        }
    }

    // The figures are upstream's (apiextensions-apiserver, TestCostEstimation).
    #[test]
    fn estimates_of_lists_and_maps_are_upstreams() {
        let all = "self.all(x, true)";
        let lists = [
            ("number", all, 4_718_591, 10, 32),
            ("string", all, 3_145_727, 20, 62),
            ("boolean", all, 1_887_437, 5, 17),
            ("int-or-string", all, 4_718_591, 10, 32),
            ("duration", all, 2_359_295, 5, 17),
            ("date", all, 725_936, 15, 47),
            ("date-time", all, 428_963, 25, 77),
            ("number", "self[1] == 0.0", 2, 5000, 2),
            ("string", "self[1] == self[1]", 314_577, 8, 314_577),
            ("int-or-string", "self[0] == 5", 3, 10, 3),
            ("boolean", "self[0] == false", 2, 25, 2),
            ("number", "self.all(x, x == 0.0)", 6_291_454, 10, 42),
            ("duration", "self[0].getHours() == 2", 4, 525, 4),
        ];
        for (ty, rule, free, most, bounded) in lists {
            let list = json!({"type": "array", "items": scalar(ty)});
            assert_eq!(estimate(list.clone(), rule), free, "{ty}: {rule}");
            let mut list = list;
            list["maxItems"] = most.into();
            assert_eq!(
                estimate(list, rule),
                bounded,
                "{ty}: {rule}, at most {most}"
            );
        }
        let maps = [
            ("number", all, 1_348_169, 10, 32),
            ("string", all, 1_179_647, 3, 11),
            ("boolean", all, 943_718, 100, 302),
            ("int-or-string", all, 1_348_169, 15, 47),
            ("duration", all, 1_048_577, 5, 17),
            ("date", all, 524_288, 10, 32),
            ("date-time", all, 349_526, 25, 77),
            ("number", r#"self["x"] == 0.0"#, 2, 0, 2),
            ("integer", "oldSelf.size() == self.size()", 5, 10, 5),
            ("date-time", r#"self["a"] == self["b"]"#, 8, 7, 8),
        ];
        for (ty, rule, free, most, bounded) in maps {
            let map = json!({"type": "object", "additionalProperties": scalar(ty)});
            assert_eq!(estimate(map.clone(), rule), free, "{ty}: {rule}");
            let mut map = map;
            map["maxProperties"] = most.into();
            assert_eq!(estimate(map, rule), bounded, "{ty}: {rule}, at most {most}");
        }
    }

    #[test]
    fn estimates_of_texts_are_upstreams() {
        let texts = [
            ("self.contains('test')", 314_574, 10, 5),
            ("self.startsWith('test')", 2, 15, 2),
            (r#"size(self + "hello") > size("hello")"#, 314_578, 4, 7),
            (r#"self.matches("x")"#, 314_574, 50, 22),
            (r#""".matches("(((((((((())))))))))[0-9]")"#, 7, 10, 7),
            (r#"self.matches("")"#, 1, 100, 1),
            (r#"self == "x""#, 2, 0, 1),
            ("self.find('[0-9]+') == ''", 629_147, 10, 11),
            ("self.lowerAscii() == 'lower!'", 314_575, 10, 6),
        ];
        for (rule, free, most, bounded) in texts {
            assert_eq!(estimate(scalar("string"), rule), free, "{rule}");
            let text = json!({"type": "string", "maxLength": most});
            assert_eq!(estimate(text, rule), bounded, "{rule}, at most {most}");
        }
        let words = json!({"type": "string", "enum": ["A", "B", "C", "LongValue"]});
        assert_eq!(estimate(words, "self.contains('A')"), 2);
        let list =
            json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}});
        assert_eq!(estimate(list.clone(), "self.join(' ') == 'aa bb'"), 43);
        assert_eq!(estimate(list, "self.isSorted() == true"), 52);
        let mixed = json!({"x-kubernetes-int-or-string": true, "maxLength": 20});
        assert_eq!(estimate(mixed, "isQuantity(self)"), 9);
        let object = |most: u64| {
            json!({"type": "object", "properties": {"str": {"type": "string", "maxLength": most},
                "before": {"type": "string", "maxLength": 2}, "after": {"type": "string", "maxLength": 4}}})
        };
        let rule = "self.str.replace(self.before, self.after) == 'does not matter'";
        assert_eq!(estimate(object(4), rule), 12);
        let rule = "self.str.split(self.str) == []";
        assert_eq!(estimate(object(10), rule), 22);
        let nested =
            json!({"type": "array", "items": {"type": "array", "items": scalar("number")}});
        assert_eq!(estimate(nested, "self[0][0] == -1.0"), 3);
    }

    fn told(schema: &Value) -> Vec<String> {
        let definition =
            json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
        let mut errors = Errors::default();
        check(&definition, None, &mut errors);
        let short = |e: &FieldError| {
            e.to_string()
                .replace("spec.validation.openAPIV3Schema", "S")
        };
        errors.0.iter().map(short).collect()
    }

    #[test]
    fn rules_that_may_cost_too_much_are_refused_in_upstreams_words() {
        let rule = |rule: &str| json!([{ "rule": rule }]);
        let object = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
        let twice = "self.all(x, self.all(y, x == y))";
        let free = object(json!({"type": "array", "items": {"type": "string"},
            "x-kubernetes-validations": rule(twice)}));
        let advice = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, \
                      and strings are declared)";
        let at = "S.properties[spec].x-kubernetes-validations[0].rule";
        assert_eq!(
            told(&free),
            [
                format!(
                    "{at}: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {advice}"
                ),
                format!(
                    "{at}: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire \
                     OpenAPIv3 schema"
                ),
                format!(
                    "S: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema \
                     exceeds budget by factor of more than 100x {advice}"
                ),
            ]
        );
        let bounded = object(
            json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10},
            "x-kubernetes-validations": rule(twice)}),
        );
        assert_eq!(told(&bounded), Vec::<String>::new());
        // A rule of an item counts as often as there may be items.
        let items = |most: Option<u64>| {
            let mut list = json!({"type": "array", "items": {"type": "string", "maxLength": 100,
                "x-kubernetes-validations": rule("self.contains('abcdefghijk')")}});
            if let Some(most) = most {
                list["maxItems"] = most.into();
            }
            object(list)
        };
        assert_eq!(told(&items(Some(1000))), Vec::<String>::new());
        assert!(told(&items(None))[0].contains("exceeds budget by factor of 8.5x"));
    }

    #[test]
    fn what_was_is_only_compared_where_it_can_be_found() {
        let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
        let list = |how: Value| {
            let mut list = json!({"type": "array", "maxItems": 5, "items": item});
            list["x-kubernetes-list-type"] = how;
            list["x-kubernetes-list-map-keys"] = json!(["k"]);
            json!({"type": "object", "properties": {"l": list}})
        };
        assert_eq!(told(&list(json!("map"))), Vec::<String>::new());
        let said = told(&list(json!("atomic")));
        assert!(
            said[0].ends_with("uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[l]")
                || said[0].ends_with("uncorrelatable portion of the schema within S.properties[l]"),
            "{said:?}"
        );
        let unused = json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true}]});
        assert_eq!(
            told(&unused),
            [
                "S.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
            ]
        );
    }
}
