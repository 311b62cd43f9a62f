// Prints which functions do not exist: php -r, in the container that was profiled. Standard input is a JSON list of [name,
// file, line where it begins]; the answer lists those that neither PHP nor that line of that file declares.

// The declarations of a file, as [line => [names]]. A method is Class::name, a function has its namespace, a closure no name.
function declared(string $file): array
{
    $tokens = array_values(array_filter(PhpToken::tokenize(file_get_contents($file)), fn ($token) => !$token->isIgnorable()));
    $found = $classes = [];
    $namespace = '';
    $depth = 0;
    foreach ($tokens as $at => $token) {
        $next = $tokens[$at + 1] ?? $token;
        $next = $next->text === '&' ? $tokens[$at + 2] : $next;
        $before = $tokens[$at - 1] ?? $token;
        if ($token->is(['{', T_CURLY_OPEN, T_DOLLAR_OPEN_CURLY_BRACES])) {
            $depth++;
        } elseif ($token->is('}')) {
            $depth--;
            unset($classes[$depth]);
        } elseif ($token->is(T_NAMESPACE) && $next->is([T_STRING, T_NAME_QUALIFIED])) {
            $namespace = $next->text . '\\';
        } elseif ($token->is([T_CLASS, T_TRAIT, T_INTERFACE, T_ENUM]) && !$before->is(T_DOUBLE_COLON)) {
            // Its body begins at this depth. A function without a name is named by its position.
            $classes[$depth] = $next->is(T_STRING) ? [$namespace . $next->text, $token->is(T_TRAIT)] : ["class@anonymous:$file:$token->line", false];
        } elseif ($token->is(T_FN) || $token->is(T_FUNCTION) && !$before->is(T_USE)) {
            $name = $token->is(T_FUNCTION) && $tokens[$at + 1]->text !== '(' && $next->text !== '(' ? $next->text : null;
            // The method of a trait is named by the class that uses it.
            [$class, $trait] = $classes[$depth - 1] ?? [null, false];
            $found[$token->line][] = match (true) {
                $name === null => "{closure:$file:$token->line}",
                $class === null => $namespace . $name,
                default => ($trait ? '' : $class) . "::$name",
            };
        }
    }
    return $found;
}

function exists_in_php(string $name): bool
{
    [$class, $method] = explode('::', $name, 2) + [1 => null];
    return $method === null ? function_exists($name) && (new ReflectionFunction($name))->isInternal()
        : method_exists($class, $method) && (new ReflectionMethod($class, $method))->isInternal();
}

$missing = [];
$files = [];
foreach (json_decode(stream_get_contents(STDIN), true) as [$name, $file, $line]) {
    if (preg_match('/^(?:include|include_once|require|require_once) (.*)$/', $name, $found)) {
        $exists = is_file($found[1]);
    } elseif ($name === '{main}') {
        $exists = is_file($file);
    } elseif (!is_file($file)) {
        $exists = exists_in_php($name);
    } else {
        $files[$file] ??= declared($file);
        $of_trait = '::' . preg_replace('/^.*::/', '', $name);
        $exists = array_intersect([$name, $of_trait], $files[$file][$line] ?? []) !== [];
    }
    if (!$exists) {
        $missing[] = "$name in $file from line $line";
    }
}
echo json_encode($missing);
