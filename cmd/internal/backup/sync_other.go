//go:build !linux

package backup

// syncsAll says that syncAll makes all durable, so that no file has to be by itself.
const syncsAll = false

func syncAll(string) error { return nil }

// exchange has two folders swap their names, both at once. false: this system cannot.
func exchange(string, string) (bool, error) { return false, nil }
