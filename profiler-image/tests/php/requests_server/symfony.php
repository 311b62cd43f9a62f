<?php
// The same routes by Symfony's router and HttpKernel, as a micro framework has them.
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\{Request, RequestStack, Response};
use Symfony\Component\HttpKernel\Controller\{ArgumentResolver, ControllerResolver};
use Symfony\Component\HttpKernel\EventListener\RouterListener;
use Symfony\Component\HttpKernel\HttpKernel;
use Symfony\Component\Routing\Matcher\UrlMatcher;
use Symfony\Component\Routing\{RequestContext, Route, RouteCollection};

$begun = hrtime(true);
require_once __DIR__ . '/functions.php';
require_once 'Symfony/Component/HttpKernel/autoload.php';
require_once 'Symfony/Component/Routing/autoload.php';
$served = [
    '/shop/{id}/cart' => 'serve_cart', '/item/{item}' => 'serve_item', '/pay' => 'serve_pay', '/own/{id}/x' => 'serve_own',
    '/reset/{token}' => 'serve_home',
];
$routes = new RouteCollection();
foreach ($served as $path => $serve) {
    $controller = function () use ($serve, $begun) {
        $serve();
        return new Response('served ' . (hrtime(true) - $begun));
    };
    $routes->add($serve, new Route($path, ['_controller' => $controller]));
}
$stack = new RequestStack();
$dispatcher = new EventDispatcher();
$dispatcher->addSubscriber(new RouterListener(new UrlMatcher($routes, new RequestContext()), $stack));
$kernel = new HttpKernel($dispatcher, new ControllerResolver(), $stack, new ArgumentResolver());
$kernel->handle(Request::createFromGlobals())->send();
