package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/daemon"
)

// place says where a command works: which configuration, which home.
type place struct {
	config string
	home   string
}

// load reads the configuration, wherever it is found. The error lists every problem.
func (at *place) load() (*config.Config, error) {
	path, err := config.Find(at.config, os.Getenv)
	if err != nil {
		return nil, err
	}
	return daemon.Load(path, at.home)
}

// homeDir is the home alone, for commands that need no more of the configuration: a
// mistake in a job does not keep its owner from the history.
func (at *place) homeDir() (string, error) {
	if at.home != "" {
		return filepath.Abs(at.home)
	}

	path, err := config.Find(at.config, os.Getenv)
	if err != nil {
		if at.config != "" || !errors.Is(err, config.ErrNoFile) {
			return "", err
		}
		return config.DefaultHome(os.Getenv)
	}

	return config.Home(path, os.Getenv)
}

// session is a command's connection: to the daemon of the home or, where none runs, to
// the same API in this process, which then holds the home.
type session struct {
	*api.Client
	home   string
	daemon bool
	local  *daemon.Daemon
	close  func()
}

// open connects to the daemon, or opens the home when there is none.
func (at *place) open(ctx context.Context) (*session, error) {
	dir, err := at.homeDir()
	if err != nil {
		return nil, err
	}

	// A command that holds the home without a daemon is done soon, so waiting beats failing.
	deadline := time.Now().Add(daemon.HomeWait)
	for {
		s, err := at.try(ctx, dir)
		var held *daemon.HeldError
		if err == nil || !errors.As(err, &held) || time.Now().After(deadline) {
			return s, err
		}

		// Another command has the home for a moment, or a daemon is just starting.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (at *place) try(ctx context.Context, dir string) (*session, error) {
	client, err := api.Dial(ctx, daemon.SocketPath(dir))
	if err == nil {
		// Nothing to close: connections to the daemon end with this process.
		return &session{Client: client, home: dir, daemon: true, close: func() {}}, nil
	}
	if !errors.Is(err, api.ErrNoDaemon) {
		return nil, err
	}

	cfg, problem := at.load()
	var wanted []config.SecretRef
	if problem != nil {
		if cfg != nil {
			wanted = cfg.SecretRefs()
		}
		// The secrets that it names go along all the same: doctor reports those that are not set.
		cfg = &config.Config{} // history can be read all the same
	}

	d, err := daemon.Open(ctx, daemon.Options{Home: dir, Config: cfg, Problem: problem, Wanted: wanted, Logger: daemon.QuietLogger()})
	if err != nil {
		return nil, err
	}

	return &session{Client: api.InProcess(d.Handler), home: dir, local: d, close: d.Close}, nil
}
