//! Which NVIDIA driver a machine size takes, and which image of it this node's image was built with.

use serde::Deserialize;

const SIZES: &str = include_str!("../../data/gpu-sizes.tbl");

/// The driver of the first NC sizes, which no later driver knows.
const KEPLER_DRIVER: &str = "cuda-470.82.01";

/// What a machine size needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The driver's flavour: `cuda`, `cuda-lts`, `grid` or `grid-v20`.
    pub driver: &'static str,
    /// Whether NVIDIA's fabric manager must run.
    pub fabric_manager: bool,
}

/// What `vm_size` needs. Sizes without a GPU get the default, as upstream gives it.
pub fn needs(vm_size: &str) -> Needs {
    let size = vm_size.to_lowercase();
    let listed = size.strip_prefix("standard_").and_then(|size| {
        let mut rows = SIZES.lines().map(str::split_whitespace);
        rows.find_map(|mut row| (row.next()? == size).then_some((row.next()?, row.next()?)))
    });
    match listed {
        Some((driver, fabric_manager)) => Needs {
            driver,
            fabric_manager: fabric_manager == "yes",
        },
        None => Needs {
            driver: if is_first_nc(&size) {
                "cuda"
            } else {
                "cuda-lts"
            },
            fabric_manager: false,
        },
    }
}

fn is_first_nc(size: &str) -> bool {
    size.starts_with("standard_nc") && !size.contains("_v")
}

/// The driver images that a node's image knows: `components.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverImages(Vec<DriverImage>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct DriverImage {
    repository: String,
    driver: String,
    suffix: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Components {
    #[serde(default, rename = "GPUContainerImages")]
    images: Vec<Component>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Component {
    #[serde(rename = "downloadURL")]
    download_url: String,
    gpu_version: ComponentVersion,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ComponentVersion {
    latest_version: String,
}

impl DriverImages {
    /// Reads `components.json`; images whose version is not `driver-suffix` are not taken.
    pub fn parse(components: &[u8]) -> Result<DriverImages, serde_json::Error> {
        let components: Components = serde_json::from_slice(components)?;
        let image = |component: Component| {
            let mut parts = component.gpu_version.latest_version.split('-');
            let (driver, suffix) = (parts.next()?, parts.next()?);
            let name = component.download_url.rsplit('/').next()?;
            parts.next().is_none().then(|| DriverImage {
                repository: name.split(':').next().unwrap_or(name).to_owned(),
                driver: driver.to_owned(),
                suffix: suffix.to_owned(),
            })
        };
        let images = components.images.into_iter();
        Ok(DriverImages(images.filter_map(image).collect()))
    }

    /// The driver's version for this size; empty where none is known.
    pub fn driver_version(&self, vm_size: &str) -> &str {
        match needs(vm_size).driver {
            "cuda" => KEPLER_DRIVER,
            driver => self.find(driver).map_or("", |image| &image.driver),
        }
    }

    /// The rest of the image's tag for this size; empty where none is known.
    pub fn image_suffix(&self, vm_size: &str) -> &str {
        let driver = match needs(vm_size).driver {
            "cuda" => "cuda-lts",
            driver => driver,
        };
        self.find(driver).map_or("", |image| &image.suffix)
    }

    fn find(&self, driver: &str) -> Option<&DriverImage> {
        let repository = format!("aks-gpu-{driver}");
        // The last one counts, as upstream's loop has it.
        let mut images = self.0.iter().rev();
        images.find(|image| image.repository == repository)
    }
}
