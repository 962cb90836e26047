package watcher_test

import "errors"

func store(string, string) error { return errors.ErrUnsupported }
