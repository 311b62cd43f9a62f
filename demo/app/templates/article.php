<article>
<?php for ($paragraph = 0; $paragraph < 8; $paragraph++): ?>
  <p><?= htmlspecialchars($this->filled(self::TEXT)) ?></p>
<?php endfor ?>
</article>
