<p><?= htmlspecialchars($this->filled('{title} is {state}: {count} "left" in <{shelf}>, as of {date}.')) ?></p>
