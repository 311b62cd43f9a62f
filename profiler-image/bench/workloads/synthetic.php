<?php
// Eight calls of each other and a sleep of 50 µs at the end: a stack that seldom changes, and a process that hardly works.
class Ladder {
    public function climb(): void { for (;;) { $this->step1(); } }
    private function step1(): void { $this->step2(); }
    private function step2(): void { $this->step3(); }
    private function step3(): void { $this->step4(); }
    private function step4(): void { $this->step5(); }
    private function step5(): void { $this->step6(); }
    private function step6(): void { $this->step7(); }
    private function step7(): void { $this->step8(); }
    private function step8(): void { usleep(50); }
}
(new Ladder)->climb();
