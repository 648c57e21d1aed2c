//! When a webhook is asked: expressions about the SubjectAccessReview's spec, `request`.

use std::sync::{Arc, LazyLock};

use cel::shape::{Kind, Shape};
use cel::{Bindings, Budget, Env, Program, Type};
use serde_json::Value;

/// The conditions of a webhook.
#[derive(Debug, Default)]
pub struct Conditions(Vec<(String, Program)>);

// What is written the same means the same.
impl PartialEq for Conditions {
    fn eq(&self, other: &Conditions) -> bool {
        let texts = |all: &Conditions| {
            all.0
                .iter()
                .map(|(text, _)| text.clone())
                .collect::<Vec<_>>()
        };
        texts(self) == texts(other)
    }
}

/// What conditions say of a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The webhook is asked.
    Met,
    /// It is passed over.
    NotMet,
    /// None says no, and these could not be told.
    Failed(String),
}

static REQUEST: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let text = || Shape::plain(Kind::String);
    let texts = |name: &str, fields: &[&str]| {
        let fields: Vec<_> = fields.iter().map(|field| (*field, text())).collect();
        Shape::object(name, &fields)
    };
    let requirement = Shape::object(
        "kubernetes.SelectorRequirement",
        &[
            ("key", text()),
            ("operator", text()),
            ("values", Shape::list(text())),
        ],
    );
    let selector = |name: &str| {
        let requirements = Shape::list(Arc::clone(&requirement));
        Shape::object(
            name,
            &[("rawSelector", text()), ("requirements", requirements)],
        )
    };
    let resource = Shape::object(
        "kubernetes.ResourceAttributes",
        &[
            ("namespace", text()),
            ("verb", text()),
            ("group", text()),
            ("version", text()),
            ("resource", text()),
            ("subresource", text()),
            ("name", text()),
            (
                "fieldSelector",
                selector("kubernetes.FieldSelectorAttributes"),
            ),
            (
                "labelSelector",
                selector("kubernetes.LabelSelectorAttributes"),
            ),
        ],
    );
    Shape::object(
        "kubernetes.SubjectAccessReviewSpec",
        &[
            ("resourceAttributes", resource),
            (
                "nonResourceAttributes",
                texts("kubernetes.NonResourceAttributes", &["path", "verb"]),
            ),
            ("user", text()),
            ("groups", Shape::list(text())),
            ("extra", Shape::map(Shape::list(text()))),
            ("uid", text()),
        ],
    )
});
static ENV: LazyLock<Env> = LazyLock::new(|| Env::new().variable("request", Type::of(&REQUEST)));

impl Conditions {
    /// Adds one; says what is wrong with it in upstream's words.
    pub(super) fn add(&mut self, text: &str) -> Result<(), String> {
        let program = Program::compile(text, &ENV);
        let program = program.map_err(|issues| format!("compilation failed: {issues}"))?;
        if *program.result() != Type::Bool {
            return Err(format!(
                "must evaluate to bool but got {}",
                program.result()
            ));
        }
        self.0.push((text.to_owned(), program));
        Ok(())
    }

    /// What they say of a spec: one no is enough, whatever else fails.
    pub fn verdict(&self, spec: &Value) -> Verdict {
        let mut failures = Vec::new();
        for (text, program) in &self.0 {
            let value = cel::Value::shaped(spec, &REQUEST);
            let bindings = Bindings::new(&ENV).set(&ENV, "request", value);
            match program.evaluate(&bindings, &mut Budget::new(cel::PER_OBJECT)) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(cel::Value::Bool(false)) => return Verdict::NotMet,
                Ok(_) => failures.push(format!(
                    "cel evaluation error: expression '{text}' eval result type should be bool"
                )),
                Err(error) => failures.push(format!(
                    "cel evaluation error: expression '{text}' resulted in error: {}",
                    error.message
                )),
            }
        }
        match failures.len() {
            0 => Verdict::Met,
            1 => Verdict::Failed(failures.remove(0)),
            _ => Verdict::Failed(format!("[{}]", failures.join(", "))),
        }
    }
}
