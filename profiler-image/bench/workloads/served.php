<?php
// What FrankenPHP serves: a page of rows, for some milliseconds, of methods and functions of the engine.
class Page {
    public function show(): string { $text = ''; foreach (range(1, 300) as $row) { $text .= $this->row($row); } return $text; }
    private function row(int $row): string { return htmlspecialchars($this->cell("row <$row>")); }
    private function cell(string $text): string { return str_pad(strrev(md5($text)), 40); }
}
for ($pages = 0; $pages < 20; $pages++) { $shown = (new Page)->show(); }
echo strlen($shown);
