//! `kyanite addon`.

use clap::Subcommand;

use super::Place;

#[derive(Debug, Subcommand)]
pub(crate) enum AddonCommand {
    /// List add-ons: which a cluster has, and whether they are ready
    List(Place),
    /// Give the cluster an add-on
    Enable {
        #[command(flatten)]
        place: Place,
        /// The add-on
        addon: String,
    },
    /// Take an add-on and everything it is made of away
    Disable {
        #[command(flatten)]
        place: Place,
        /// The add-on
        addon: String,
    },
}
