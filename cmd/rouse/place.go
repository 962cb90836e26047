package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/web"
)

// homeWait is how long a command waits for another command to leave the home.
const homeWait = 10 * time.Second

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
	return load(path, at.home)
}

func load(path, home string) (*config.Config, error) {
	return config.Load(config.LoadOptions{Path: path, Home: home, Getenv: os.Getenv, Tools: toolNames(), Secret: finder(path, home),
		Ollama: func() (string, string, bool) { return findOllama(os.Getenv) }})
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
	*web.Client
	home   string
	daemon bool
	local  *daemon
	close  func()
}

// open connects to the daemon, or opens the home when there is none.
func (at *place) open(ctx context.Context) (*session, error) {
	dir, err := at.homeDir()
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(homeWait)
	for {
		s, err := at.try(ctx, dir)
		var held *heldError
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
	client, err := web.Dial(ctx, socketPath(dir))
	if err == nil {
		return &session{Client: client, home: dir, daemon: true, close: func() {}}, nil
	}
	if !errors.Is(err, web.ErrNoDaemon) {
		return nil, err
	}
	cfg, problem := at.load()
	var wanted []config.SecretRef
	if problem != nil {
		if cfg != nil {
			wanted = cfg.SecretRefs()
		}
		cfg = &config.Config{} // history can be read all the same
	}
	d, err := openDaemon(ctx, daemonOptions{home: dir, config: cfg, problem: problem, wanted: wanted, logger: quietLogger()})
	if err != nil {
		return nil, err
	}
	return &session{Client: web.InProcess(d.handler), home: dir, local: d, close: d.close}, nil
}
