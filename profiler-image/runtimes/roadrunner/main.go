// rr is RoadRunner's HTTP server: its own plugins, wired as its binary does it. Usage: rr CONFIGURATION.yaml
//
// Does not: have the other plugins, or commands to manage a running server.
package main

import (
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/roadrunner-server/config/v5"
	"github.com/roadrunner-server/endure/v2"
	rrhttp "github.com/roadrunner-server/http/v5"
	"github.com/roadrunner-server/logger/v5"
	"github.com/roadrunner-server/rpc/v5"
	"github.com/roadrunner-server/server/v5"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("rr: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: rr CONFIGURATION.yaml")
	}
	if err := serve(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func serve(configuration string) error {
	container := endure.New(slog.LevelError, endure.GracefulShutdownTimeout(5*time.Second))
	err := container.RegisterAll(
		&config.Plugin{Path: configuration, Timeout: 5 * time.Second, Version: "2025.1.0"},
		&logger.Plugin{}, &rpc.Plugin{}, &server.Plugin{}, &rrhttp.Plugin{},
	)
	if err != nil {
		return err
	}
	if err := container.Init(); err != nil {
		return err
	}
	errors, err := container.Serve()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	select {
	case failed := <-errors:
		return failed.Error
	case <-signals:
		return container.Stop()
	}
}
