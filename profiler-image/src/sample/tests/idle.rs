//! Reads of a worker between requests.

use phpprof_zend::phase::Phase;

use super::*;

impl Scene {
    /// Sets the words up that tell phases.
    fn with_phases(mut self) -> Self {
        let [core, compiler] = [self.image.block(), self.image.block()];
        self.phase_globals.core_globals = Some(core);
        self.phase_globals.compiler_globals = Some(compiler);
        self
    }

    /// Sets `EG(current_execute_data)` and `EG(active)`.
    fn set(&mut self, frame: u64, is_active: bool) {
        let row = &self.image.layout.executor_globals;
        let globals = self.image.executor_globals;
        self.image
            .put_word(globals, row.current_execute_data, frame);
        self.image
            .put(globals + row.active as u64, &[is_active.into()]);
    }
}

/// Reads the worker; whether that also read the place of the scene's stack.
fn read(scene: &Scene, worker: &mut Worker) -> (Option<Option<Phase>>, bool) {
    worker.reader.copy = Copy::default();
    let phase = match worker.reader.read().unwrap() {
        Reading::NoFrame(phase) => Some(phase),
        Reading::Busy { .. } | Reading::Elsewhere => None,
    };
    (phase, worker.reader.copy.inside(scene.main_frame))
}

#[test]
fn next_request_is_expected_at_the_last_stack() {
    let mut scene = Scene::calling().with_phases();
    let mut worker = scene.worker();
    let frame = worker.reader.memory.word(worker.reader.top_at()).unwrap();
    scene.set(0, false);
    let idle = Some(Some(Phase::Idle));
    assert_eq!(read(&scene, &mut worker), (idle, false), "no stack yet");
    scene.set(frame, true);
    assert_eq!(read(&scene, &mut worker), (None, true));
    scene.set(0, false);
    for _ in 0..2 {
        assert_eq!(read(&scene, &mut worker), (idle, true));
    }
}

/// Between two fibers there is no frame for a moment, but the engine is active.
#[test]
fn frameless_worker_is_idle_if_the_engine_agrees() {
    for has_phases in [true, false] {
        let mut scene = Scene::calling();
        if has_phases {
            scene = scene.with_phases();
        }
        let mut worker = scene.worker();
        assert_eq!(read(&scene, &mut worker), (None, true));
        scene.set(0, true);
        let expected = has_phases.then_some(Phase::Startup);
        assert_eq!(read(&scene, &mut worker).0, Some(expected));
        assert_eq!(read(&scene, &mut worker), (Some(expected), false));
    }
}
