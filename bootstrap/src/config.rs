//! What a node is asked to be: `aksnodeconfig.v1.Configuration`.
