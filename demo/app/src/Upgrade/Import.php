<?php

// Some library code of the application. After an upgrade, it raises a deprecation in each call: `UPGRADE=after` plants that, so that one
// version of PHP shows both sides.

declare(strict_types=1);

namespace Demo\Upgrade;

final class Import
{
    private const ROWS = 15000;

    public static function run(bool $isUpgraded): void
    {
        for ($row = 0; $row < self::ROWS; $row++) {
            self::column($row, $isUpgraded);
        }
    }

    private static function column(int $row, bool $isUpgraded): string
    {
        if ($isUpgraded) {
            trigger_error('Import::column() is deprecated', E_USER_DEPRECATED);
        }

        return md5((string) $row);
    }
}
