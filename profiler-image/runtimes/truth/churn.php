<?php

// One worker in four takes 40 ms for a request, the others 2 ms; the answer says which process it was, and when.

declare(strict_types=1);

$begin = hrtime(true);
usleep(getmypid() % 4 === 0 ? 40000 : 2000);
echo json_encode(['pid' => getmypid(), 'begin' => $begin, 'end' => hrtime(true)]);
