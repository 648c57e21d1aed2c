//! JSONPath as client-go speaks it, for columns and selectable fields.
//!
//! Fields, indexes, slices, unions, wildcards, recursive descent and filters; relaxed, as the printer of
//! custom columns uses it: what is missing yields nothing.

use serde_json::Value;

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Index(Vec<Slice>),
    Union(Vec<String>),
    Filter(Operand, Operator, Operand),
}

/// `[from:to:by]`; a single index is a slice of one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    by: Option<i64>,
    single: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Exists,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Constant(Value),
}

/// A path that has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Result<JsonPath, String> {
        let mut parser = Parser { text, at: 0 };
        let steps = parser.steps()?;
        match parser.at == text.len() {
            true => Ok(JsonPath(steps)),
            false => Err(format!("unexpected {:?} in {text:?}", &text[parser.at..])),
        }
    }

    /// What the path leads to, in order.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|v| step.apply(v)).collect();
        }
        found
    }
}

/// A path of plain fields, such as `.spec.replicas`, as its names.
pub fn simple(path: &str) -> Option<Vec<String>> {
    let rest = path.strip_prefix('.')?;
    let names: Vec<String> = rest.split('.').map(str::to_owned).collect();
    names.iter().all(|n| !n.is_empty()).then_some(names)
}

/// The value at a path of plain fields.
pub fn at<'v>(value: &'v Value, names: &[String]) -> Option<&'v Value> {
    names.iter().try_fold(value, |value, name| value.get(name))
}

impl Step {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            // Upstream looks into every element of a list that a field is asked of only after `..`.
            (Step::Field(_), _) => Vec::new(),
            (Step::Union(names), Value::Object(map)) => {
                names.iter().filter_map(|name| map.get(name)).collect()
            }
            (Step::Wildcard, Value::Object(map)) => map.values().collect(),
            (Step::Wildcard, Value::Array(items)) => items.iter().collect(),
            (Step::Index(slices), Value::Array(items)) => {
                slices.iter().flat_map(|slice| slice.apply(items)).collect()
            }
            (Step::Filter(left, operator, right), Value::Array(items)) => {
                let passes = |item: &&Value| operator.holds(left, right, item);
                items.iter().filter(passes).collect()
            }
            (Step::Recursive, value) => {
                let mut all = Vec::new();
                descend(value, &mut all);
                all
            }
            _ => Vec::new(),
        }
    }
}

fn descend<'v>(value: &'v Value, all: &mut Vec<&'v Value>) {
    all.push(value);
    match value {
        Value::Object(map) => map.values().for_each(|v| descend(v, all)),
        Value::Array(items) => items.iter().for_each(|v| descend(v, all)),
        _ => {}
    }
}

impl Slice {
    fn apply(self, items: &[Value]) -> Vec<&Value> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let absolute = |index: i64| if index < 0 { index + length } else { index };
        let from = absolute(self.from.unwrap_or(0));
        let to = match (self.single, self.to) {
            (true, _) => from + 1,
            (false, Some(to)) => absolute(to),
            (false, None) => length,
        };
        let by = usize::try_from(self.by.unwrap_or(1)).unwrap_or(1).max(1);
        if from < 0 || from >= length || (self.single && to > length) {
            return Vec::new();
        }
        let (from, to) = (usize::try_from(from).unwrap_or(0), to.clamp(from, length));
        let to = usize::try_from(to).unwrap_or(0);
        items[from..to].iter().step_by(by).collect()
    }
}

impl Operator {
    fn holds(self, left: &Operand, right: &Operand, item: &Value) -> bool {
        let (left, right) = (left.value(item), right.value(item));
        if self == Operator::Exists {
            return left.is_some();
        }
        let (Some(left), Some(right)) = (left, right) else {
            return false;
        };
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => {
                let (left, right) = (left.as_f64().unwrap_or(0.0), right.as_f64().unwrap_or(0.0));
                left.total_cmp(&right)
            }
            _ => return false,
        };
        match self {
            Operator::Exists => true,
            Operator::Equal => order.is_eq(),
            Operator::Unequal => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Operand {
    fn value<'v>(&'v self, item: &'v Value) -> Option<&'v Value> {
        match self {
            Operand::Constant(value) => Some(value),
            Operand::Path(path) => path.find(item).into_iter().next(),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn take(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    fn steps(&mut self) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        self.take("$");
        loop {
            if self.take("..") {
                steps.push(Step::Recursive);
                if !self.rest().starts_with('[') {
                    self.name_or_wildcard(&mut steps)?;
                }
            } else if self.take(".") {
                if !self.rest().starts_with('[') && !self.rest().is_empty() {
                    self.name_or_wildcard(&mut steps)?;
                }
            } else if self.rest().starts_with('[') {
                steps.push(self.bracket()?);
            } else {
                return Ok(steps);
            }
        }
    }

    fn name_or_wildcard(&mut self, steps: &mut Vec<Step>) -> Result<(), String> {
        if self.take("*") {
            steps.push(Step::Wildcard);
            return Ok(());
        }
        let mut name = String::new();
        let mut chars = self.text[self.at..].char_indices();
        let mut end = self.text.len();
        while let Some((i, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' | ']' | ')' | ' ' | '=' | '!' | '<' | '>' | '|' | '&' | ',' | '@'
                | '$' | '}' => {
                    end = self.at + i;
                    break;
                }
                c => name.push(c),
            }
        }
        self.at = end;
        match name.is_empty() {
            true => Err(format!("a name is missing in {:?}", self.text)),
            false => {
                steps.push(Step::Field(name));
                Ok(())
            }
        }
    }

    fn bracket(&mut self) -> Result<Step, String> {
        let unclosed = format!("unterminated array in {:?}", self.text);
        self.take("[");
        if self.take("?(") {
            let step = self.filter()?;
            return if self.take(")]") {
                Ok(step)
            } else {
                Err(unclosed)
            };
        }
        let end = self.closing().ok_or(unclosed)?;
        let inside = self.text[self.at..end].trim().to_owned();
        self.at = end + 1;
        if inside == "*" {
            return Ok(Step::Wildcard);
        }
        let parts: Vec<&str> = inside.split(',').map(str::trim).collect();
        let quoted: Option<Vec<String>> = parts.iter().map(|p| unquoted(p)).collect();
        if let Some(names) = quoted {
            return Ok(Step::Union(names));
        }
        let slices: Option<Vec<Slice>> = parts.iter().map(|p| slice(p)).collect();
        slices
            .map(Step::Index)
            .ok_or_else(|| format!("invalid array index {inside}"))
    }

    fn closing(&self) -> Option<usize> {
        let mut quote = None;
        for (i, c) in self.rest().char_indices() {
            match (quote, c) {
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                (None, ']') => return Some(self.at + i),
                _ => {}
            }
        }
        None
    }

    fn filter(&mut self) -> Result<Step, String> {
        const OPERATORS: [(&str, Operator); 6] = [
            ("==", Operator::Equal),
            ("!=", Operator::Unequal),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let left = self.operand()?;
        self.spaces();
        let found = OPERATORS
            .iter()
            .find(|(text, _)| self.rest().starts_with(text));
        let Some((text, operator)) = found else {
            return Ok(Step::Filter(
                left,
                Operator::Exists,
                Operand::Constant(Value::Null),
            ));
        };
        self.take(text);
        let right = self.operand()?;
        self.spaces();
        Ok(Step::Filter(left, *operator, right))
    }

    fn spaces(&mut self) {
        while self.take(" ") {}
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.spaces();
        if self.take("@") {
            return Ok(Operand::Path(JsonPath(self.steps()?)));
        }
        let rest = self.rest().to_owned();
        if let Some(quote @ ('"' | '\'')) = rest.chars().next() {
            let end = rest[1..].find(quote).ok_or("unterminated quoted string")?;
            self.at += end + 2;
            return Ok(Operand::Constant(rest[1..=end].into()));
        }
        let end = rest
            .find([' ', ')', '=', '!', '<', '>'])
            .unwrap_or(rest.len());
        self.at += end;
        match serde_json::from_str(&rest[..end]) {
            Ok(constant) => Ok(Operand::Constant(constant)),
            Err(_) => Err(format!("unrecognized identifier {}", &rest[..end])),
        }
    }
}

fn unquoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| *c == '\'' || *c == '"')?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(inner.replace('\\', ""))
}

fn slice(text: &str) -> Option<Slice> {
    let mut parts = text.split(':').map(str::trim);
    let number = |part: Option<&str>| match part {
        None | Some("") => Some(None),
        Some(part) => part.parse::<i64>().ok().map(Some),
    };
    let from = number(parts.next())?;
    let single = !text.contains(':');
    if single && from.is_none() {
        return None;
    }
    Some(Slice {
        from,
        to: number(parts.next())?,
        by: number(parts.next())?,
        single,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_where_client_go_goes() {
        let object = json!({
            "spec": {"replicas": 3, "a.b": "dotted", "list": [1, 2, 3], "hosts": ["x", "y"]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "n": 1},
                {"type": "Synced", "status": "False", "n": 2},
            ]},
        });
        let cases = [
            (".spec.replicas", json!([3])),
            (".spec.missing", json!([])),
            (".spec['a.b']", json!(["dotted"])),
            (".spec.a\\.b", json!(["dotted"])),
            (".spec.list[0]", json!([1])),
            (".spec.list[-1]", json!([3])),
            (".spec.list[0:2]", json!([1, 2])),
            (".spec.list[0,2]", json!([1, 3])),
            (".spec.list[9]", json!([])),
            (".spec.hosts[*]", json!(["x", "y"])),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type=='Synced')].status",
                json!(["False"]),
            ),
            (".status.conditions[?(@.n>1)].type", json!(["Synced"])),
            (".status.conditions[?(@.type)].n", json!([1, 2])),
            (".status.conditions[*].type", json!(["Ready", "Synced"])),
            ("..replicas", json!([3])),
            (".spec.*", json!(["dotted", ["x", "y"], [1, 2, 3], 3])),
        ];
        for (path, wanted) in cases {
            let path = JsonPath::parse(path).unwrap_or_else(|e| panic!("{path}: {e}"));
            let found: Vec<Value> = path.find(&object).into_iter().cloned().collect();
            assert_eq!(Value::from(found), wanted, "{path:?}");
        }
        for broken in [".spec[", ".spec[a]", ".spec.list[?(@.a==)]", "{.spec}"] {
            assert!(JsonPath::parse(broken).is_err(), "{broken}");
        }
    }
}
