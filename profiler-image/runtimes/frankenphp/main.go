// frankenphp serves PHP by FrankenPHP's own module, without Caddy: in classic mode, or with -worker in worker mode.
//
// Does not: serve files, speak TLS, or scale its threads.
package main

import (
	"flag"
	"log"
	"net/http"
	"path/filepath"

	"github.com/dunglas/frankenphp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	root := flag.String("root", ".", "`folder` of the scripts; a request names one of them by its path")
	worker := flag.String("worker", "", "`script` below the root that handles all requests in worker mode")
	threads := flag.Int("threads", 2, "PHP threads that serve requests")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("frankenphp: ")
	if err := serve(*listen, *root, *worker, *threads); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, root, worker string, threads int) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	options := []frankenphp.Option{frankenphp.WithNumThreads(threads)}
	if worker != "" {
		// FrankenPHP needs a thread in addition to the workers, for scripts that are not workers.
		options = []frankenphp.Option{
			frankenphp.WithNumThreads(threads + 1),
			frankenphp.WithWorkers("worker", filepath.Join(root, worker), threads),
		}
	}
	if err := frankenphp.Init(options...); err != nil {
		return err
	}
	defer frankenphp.Shutdown()
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if worker != "" {
			r.URL.Path = "/" + worker
		}
		request, err := frankenphp.NewRequestWithContext(r, frankenphp.WithRequestDocumentRoot(root, false))
		if err == nil {
			err = frankenphp.ServeHTTP(w, request)
		}
		if err != nil {
			log.Print(err)
		}
	}))
}
