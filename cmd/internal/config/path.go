package config

import (
	"iter"
	"strconv"

	"rouse/internal/text"
)

// Short truncates a value for messages.
func Short(s string) string { return text.Truncate(s, 40) }

// Join returns the path of a key below path.
func Join(path, key string) string {
	if path == "" {
		return Short(key)
	}
	return path + "." + Short(key)
}

// ItemOf returns the path of an item of a list.
func ItemOf(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Each yields the items of the list at path with their own paths: jobs[0], jobs[1].
func Each[T any](path string, list []T) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for i := range list {
			if !yield(ItemOf(path, i), &list[i]) {
				return
			}
		}
	}
}
