//! Expressions as the parser leaves them: macros are expanded, names are not yet resolved.

/// One expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    /// Where it begins, in code points; where errors point to.
    pub(crate) at: u32,
    /// How deep it is; every pass over it recurses that far.
    pub(crate) depth: u16,
    pub(crate) kind: Kind,
}

/// A value that stands in the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Const {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Const(Const),
    Ident(String),
    /// `operand.field`, or with `test` what `has(operand.field)` asks.
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    Struct {
        name: String,
        fields: Vec<Field>,
    },
    Fold(Box<Fold>),
}

/// An item of a list; an optional one is left out when it has no value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) optional: bool,
    pub(crate) value: Expr,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) optional: bool,
    pub(crate) key: Expr,
    pub(crate) value: Expr,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) at: u32,
    pub(crate) optional: bool,
    pub(crate) name: String,
    pub(crate) value: Expr,
}

/// What every macro with a loop becomes: `step` runs for each element while `condition` holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fold {
    pub(crate) variable: String,
    /// The second variable of two-variable forms: values, while the first one has keys or indexes.
    pub(crate) second: Option<String>,
    pub(crate) range: Expr,
    pub(crate) accumulator: String,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Kind {
    fn depth(&self) -> u16 {
        let deepest = |exprs: &mut dyn Iterator<Item = &Expr>| exprs.map(|e| e.depth).max();
        let found = match self {
            Kind::Const(_) | Kind::Ident(_) => None,
            Kind::Select { operand, .. } => Some(operand.depth),
            Kind::Call { target, args, .. } => {
                deepest(&mut target.iter().map(|target| &**target).chain(args))
            }
            Kind::List(items) => deepest(&mut items.iter().map(|item| &item.value)),
            Kind::Map(entries) => deepest(&mut entries.iter().flat_map(|e| [&e.key, &e.value])),
            Kind::Struct { fields, .. } => deepest(&mut fields.iter().map(|f| &f.value)),
            Kind::Fold(fold) => {
                deepest(&mut [&fold.range, &fold.init, &fold.step, &fold.result].into_iter())
            }
        };
        found.unwrap_or_default()
    }
}

impl Expr {
    pub(crate) fn new(at: u32, kind: Kind) -> Expr {
        let depth = kind.depth().saturating_add(1);
        Expr { at, depth, kind }
    }

    pub(crate) fn call(at: u32, function: &str, args: Vec<Expr>) -> Expr {
        let function = function.to_owned();
        Expr::new(
            at,
            Kind::Call {
                function,
                target: None,
                args,
            },
        )
    }

    pub(crate) fn ident(at: u32, name: &str) -> Expr {
        Expr::new(at, Kind::Ident(name.to_owned()))
    }

    pub(crate) fn constant(at: u32, value: Const) -> Expr {
        Expr::new(at, Kind::Const(value))
    }

    /// The dotted name that this is, if it is one.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select {
                operand,
                field,
                test: false,
            } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }
}
