<?php
// An S3 server with an odd side, for PHP's built-in server. It checks no signature. MODE is one of
//   501     answers a PUT with If-None-Match with 501 NotImplemented (Alibaba OSS, older servers)
//   ignore  ignores If-None-Match, and overwrites (older Ceph, some gateways)
//   kms     refuses a PUT without x-amz-server-side-encryption with 403 (a usual bucket policy)
//   expired answers a presigned PUT with 403 ExpiredToken (credentials of a role that ended before the URL)
// The cluster's tests run it (`stores.rs`): MODE=ignore php8.2 -S [::]:9000 odd-store.php
$mode = getenv('MODE') ?: '501';
$data = getenv('DATA') ?: '/tmp/s3';
$path = rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
$method = $_SERVER['REQUEST_METHOD'];
$file = $data . '/' . str_replace('%2F', '/', rawurlencode($path));
$fail = static function (int $status, string $code): never {
    http_response_code($status);
    header('Content-Type: application/xml');
    echo "<?xml version=\"1.0\"?><Error><Code>$code</Code><Message>$code</Message></Error>";
    exit;
};
error_log("$method {$_SERVER['REQUEST_URI']} " . ($_SERVER['HTTP_IF_NONE_MATCH'] ?? '-'));
if ($method === 'GET' && isset($_GET['list-type'])) {
    $root = $data . rtrim($path, '/');
    $prefix = $_GET['prefix'] ?? '';
    echo '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>';
    foreach (is_dir($root) ? new RecursiveIteratorIterator(new RecursiveDirectoryIterator($root, FilesystemIterator::SKIP_DOTS)) : [] as $one) {
        $key = rawurldecode(ltrim(substr($one->getPathname(), strlen($root)), '/'));
        if (str_starts_with($key, $prefix)) {
            printf('<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>"%s"</ETag><Size>%d</Size></Contents>', htmlspecialchars($key),
                gmdate('Y-m-d\TH:i:s.000\Z', $one->getMTime()), md5_file($one->getPathname()), $one->getSize());
        }
    }
    echo '</ListBucketResult>';
} elseif ($method === 'PUT') {
    if ($mode === '501' && isset($_SERVER['HTTP_IF_NONE_MATCH'])) { $fail(501, 'NotImplemented'); }
    if ($mode === 'kms' && !isset($_SERVER['HTTP_X_AMZ_SERVER_SIDE_ENCRYPTION'])) { $fail(403, 'AccessDenied'); }
    if ($mode === 'expired' && isset($_GET['X-Amz-Signature'])) { $fail(403, 'ExpiredToken'); }
    if ($mode !== 'ignore' && isset($_SERVER['HTTP_IF_NONE_MATCH']) && is_file($file)) { $fail(412, 'PreconditionFailed'); }
    @mkdir(dirname($file), 0700, true);
    file_put_contents($file, fopen('php://input', 'rb'));
    header('ETag: "' . md5_file($file) . '"');
} elseif ($method === 'DELETE') {
    @unlink($file);
    http_response_code(204);
} elseif (!is_file($file)) {
    $fail(404, 'NoSuchKey');
} else {
    header('ETag: "' . md5_file($file) . '"');
    header('Last-Modified: ' . gmdate('D, d M Y H:i:s', filemtime($file)) . ' GMT');
    header('Content-Length: ' . filesize($file));
    header('Content-Type: application/octet-stream');
    if ($method === 'GET') { readfile($file); }
}
