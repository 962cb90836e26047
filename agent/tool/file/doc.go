// Package file holds the file tools. Every path goes through tool.Roots.
package file
