<?php

// The ground truth of heaps, in the place of index.php. Runs on PHP 7.4 and later, in any server, by include or as {main}.

declare(strict_types=1);

require_once __DIR__ . '/Memory.php';

ini_set('memory_limit', '-1');
Memory::begin();
Memory::half();
Memory::temporary();
Memory::third();
Memory::temporary();
Memory::fifth();
echo memory_get_usage(), "\n";
