<?php

// The one sink that is installed.

declare(strict_types=1);

namespace Demo\Audit;

final class SyslogSink
{
}
