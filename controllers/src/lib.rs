//! The controller manager: one module per controller, each a pure decision in a thin shell.
