//! Where in an object something stands, kept on the call stack and only spelled out when needed.

use crate::schema::Type;

/// One step down into an object.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    /// A field of a struct, with the struct's type.
    Field(&'static Type, &'a str),
    /// A key of a map, or of an object without a schema.
    Key(&'a str),
    Index(usize),
}

/// A place in an object. Children borrow their parent, so walking allocates nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

impl<'a> Path<'a> {
    pub(crate) const ROOT: Path<'static> = Path {
        parent: None,
        step: Step::Root,
    };

    pub(crate) fn field(&'a self, owner: &'static Type, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Field(owner, name),
        }
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Key(key),
        }
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Index(index),
        }
    }

    fn steps(&'a self) -> Vec<Step<'a>> {
        let mut steps: Vec<_> = std::iter::successors(Some(self), |p| p.parent)
            .map(|p| p.step)
            .collect();
        steps.reverse();
        steps
    }

    /// The form of upstream's strict decoder: `spec.containers[0].image`.
    pub(crate) fn strict(&self) -> String {
        let mut text = String::new();
        for step in self.steps() {
            match step {
                Step::Root => {}
                Step::Index(index) => text.push_str(&format!("[{index}]")),
                Step::Field(_, name) | Step::Key(name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(name);
                }
            }
        }
        text
    }

    /// The form of Go's JSON type errors, `PodSpec.spec.hostNetwork`: the innermost struct, then
    /// the names of struct fields from the root, embedded structs included, without indices or
    /// map keys. `None` outside any struct field.
    pub(crate) fn go(&self) -> Option<String> {
        let mut innermost = None;
        let mut names = Vec::new();
        for step in self.steps() {
            if let Step::Field(owner, name) = step {
                innermost = Some(owner.go_name());
                names.extend(embedded_names(owner, name));
                names.push(name);
            }
        }
        innermost.map(|owner| format!("{owner}.{}", names.join(".")))
    }
}

/// The names of the embedded structs between `owner` and the field, outermost first.
fn embedded_names(owner: &'static Type, field: &str) -> Vec<&'static str> {
    use crate::schema::FieldType;
    let inlined = owner
        .fields
        .iter()
        .filter(|f| f.inline)
        .find_map(|f| match f.ty {
            FieldType::Object(inner) if inner.get().field(field).is_some() => Some(inner.get()),
            _ => None,
        });
    match inlined {
        Some(inner) => {
            let mut names = vec![inner.go_name()];
            names.extend(embedded_names(inner, field));
            names
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::lookup;

    #[test]
    fn spells_both_of_upstreams_forms() {
        let type_of = |name| lookup(name).expect("exists").get();
        let spec = Path::ROOT.field(type_of("core.v1.Pod"), "spec");
        let volumes = spec.field(type_of("core.v1.PodSpec"), "volumes");
        let volume = volumes.index(3);
        let secret = volume.field(type_of("core.v1.Volume"), "secret");
        assert_eq!(secret.strict(), "spec.volumes[3].secret");
        assert_eq!(
            secret.go().as_deref(),
            Some("Volume.spec.volumes.VolumeSource.secret")
        );
        let labels = spec.key("a.b/c");
        assert_eq!(labels.strict(), "spec.a.b/c");
        assert_eq!(labels.go().as_deref(), Some("Pod.spec"));
        assert_eq!(Path::ROOT.go(), None);
    }
}
