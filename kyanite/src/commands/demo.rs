//! `kyanite demo`: an application that ships with it, and what a cluster does for it, step by step. Every step says
//! in one line what it is about, and which command one would type for it.

mod app;

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Instant;

use serde_json::json;

use self::app::App;
use crate::cli::doctor::Demo;
use crate::exit::{Code, Failure, Result};
use crate::printer::Printer;

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    App,
    Logs,
    Exec,
    Scale,
    Update,
    NodeLoss,
    CleanUp,
}

/// Steps in their order: name, what they are about, and what one would type.
const STEPS: [(Step, &str, &str, &str); 7] = [
    (
        Step::App,
        "app",
        "a Deployment keeps three pods running, a Service gives them one name, a ConfigMap tells them what to say",
        "kubectl apply -f app.yaml",
    ),
    (
        Step::Logs,
        "logs",
        "what a pod writes is kept on its node and read through the API server",
        "kubectl logs -n kyanite-demo deployment/web",
    ),
    (
        Step::Exec,
        "exec",
        "a program runs inside a pod: it asks the Service by its name",
        "kubectl exec -n kyanite-demo deployment/web -- /demo get http://web/",
    ),
    (
        Step::Scale,
        "scale",
        "five pods instead of three: the scheduler spreads them over the nodes",
        "kubectl scale -n kyanite-demo deployment/web --replicas=5",
    ),
    (
        Step::Update,
        "update",
        "version 2 takes the place of version 1, pod by pod, while a visitor asks 50 times a second",
        "kubectl set image -n kyanite-demo deployment/web web=kyanite.local/demo:2",
    ),
    (
        Step::NodeLoss,
        "node-loss",
        "a machine loses its power; after a minute the cluster has noticed, and its pods run elsewhere",
        "kyanite machine off NODE --now   and back again: kyanite up",
    ),
    (
        Step::CleanUp,
        "clean-up",
        "with its namespace everything goes",
        "kubectl delete namespace kyanite-demo",
    ),
];

/// What somebody at the terminal wants.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Do,
    Skip,
    End,
}

/// Runs every step that is wanted.
pub(super) async fn run(command: Demo, printer: Printer) -> Result<()> {
    check_names(&command.skip)?;
    let app = App::open(&command.place).await?;
    let asks = !command.yes && std::io::stdin().is_terminal();
    let (mut done, mut skipped) = (Vec::new(), Vec::new());
    for (number, (step, name, about, typed)) in STEPS.iter().enumerate() {
        printer.note(&format!(
            "\n{}/{} {name}: {about}\n    $ {typed}",
            number + 1,
            STEPS.len()
        ));
        let left_out = command.skip.iter().any(|skip| skip == name)
            || (command.keep && *step == Step::CleanUp);
        let answer = match left_out {
            true => Answer::Skip,
            false if asks => ask(&printer),
            false => Answer::Do,
        };
        match answer {
            Answer::Do => {}
            Answer::Skip => {
                skipped.push(*name);
                continue;
            }
            Answer::End => break,
        }
        let began = Instant::now();
        match play(&app, *step, &printer).await? {
            Ok(seen) => {
                printer.stage(name, &seen, began.elapsed().as_millis());
                done.push(*name);
            }
            Err(why_not) => {
                printer.note(&format!("  - left out: {why_not}"));
                skipped.push(*name);
            }
        }
    }
    let text = match done.contains(&"clean-up") {
        true => "that was it; the application is gone".to_owned(),
        false => "the application is still there: `kubectl get pods -n kyanite-demo`".to_owned(),
    };
    printer.result(&text, &json!({"done": done, "skipped": skipped}));
    Ok(())
}

fn check_names(skip: &[String]) -> Result<()> {
    let known = STEPS.map(|(_, name, _, _)| name);
    match skip.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(
            Failure::new(Code::Usage, format!("there is no step `{name}`"))
                .hint(format!("there are {}", known.join(", "))),
        ),
    }
}

fn ask(printer: &Printer) -> Answer {
    printer.note("    Enter goes on, s skips this step, q ends");
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => Answer::End,
        Ok(_) => answer(&line),
    }
}

fn answer(line: &str) -> Answer {
    match line.trim() {
        "s" | "skip" => Answer::Skip,
        "q" | "quit" => Answer::End,
        _ => Answer::Do,
    }
}

/// What was seen, or why the step makes no sense here.
type Seen = std::result::Result<String, String>;

async fn play(app: &App, step: Step, printer: &Printer) -> Result<Seen> {
    match step {
        Step::App => app.deploy().await.map(Ok),
        Step::Logs => app.logs(printer).await,
        Step::Exec => app.exec(printer).await,
        Step::Scale => app.scale().await.map(Ok),
        Step::Update => app.update().await,
        Step::NodeLoss => app.lose_a_node(printer).await,
        Step::CleanUp => app.clean_up().await.map(Ok),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn people_answer_in_a_letter() {
        for (line, wanted) in [
            ("\n", Answer::Do),
            ("s\n", Answer::Skip),
            (" q \n", Answer::End),
        ] {
            assert_eq!(answer(line), wanted);
        }
    }

    #[test]
    fn steps_that_are_left_out_must_exist() {
        assert!(check_names(&["scale".to_owned()]).is_ok());
        let failure = check_names(&["dance".to_owned()]).unwrap_err();
        assert!(failure.hint.unwrap().contains("node-loss"));
    }
}
