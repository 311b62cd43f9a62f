<?php

// Demo\Checkout\Cart is in src/Checkout/Cart.php, Demo\Budget in src/Budget.php. A class that has no file is not there.

declare(strict_types=1);

namespace Demo;

final class Autoloader
{
    public static function load(string $class): void
    {
        $file = self::file($class);
        if (is_file($file)) {
            require $file;
        }
    }

    private static function file(string $class): string
    {
        return __DIR__ . '/src/' . str_replace('\\', '/', substr($class, strlen('Demo\\'))) . '.php';
    }
}
