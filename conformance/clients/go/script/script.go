// Package script has helpers for all scripts: servers by environment variable, parts by name, waiting for
// conditions.
package script

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

// Part is one group of checks. It panics with a failure.
type Part struct {
	Name string
	Run  func()
}

// Address returns the address of a server from an environment variable.
func Address(name string) string {
	return os.Getenv(name)
}

// Equal panics unless both values are equal.
func Equal(given, expected any) {
	if !reflect.DeepEqual(given, expected) {
		panic(fmt.Sprintf("%#v instead of %#v", given, expected))
	}
}

// Holds panics with the expectation unless it is true.
func Holds(what string, is bool) {
	if !is {
		panic("not so: " + what)
	}
}

// Good panics if there is an error.
func Good(err error) {
	if err != nil {
		panic(err)
	}
}

// Get returns the value of a call that must succeed.
func Get[T any](value T, err error) T {
	Good(err)
	return value
}

// Fails panics unless there is an error whose text contains these words.
func Fails(err error, words ...string) {
	if err == nil {
		panic(fmt.Sprintf("no error with %q", words))
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			panic(fmt.Sprintf("%q is not in %q", word, err))
		}
	}
}

// Until waits until the condition holds.
func Until(what string, holds func() bool) {
	end := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(end) {
			panic("not within 20 s: " + what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Restart asks the test, with a line of output, to restart the server on the same port.
func Restart() {
	fmt.Println("restart")
	Get(bufio.NewReader(os.Stdin).ReadString('\n'))
}

// Every returns all byte values.
func Every() string {
	bytes := make([]byte, 256)
	for index := range bytes {
		bytes[index] = byte(index)
	}
	return string(bytes)
}

// Run runs the parts named by the arguments; it exits with 1 if one failed.
func Run(parts []Part) {
	status := 0
	for _, name := range os.Args[1:] {
		if problem := run(parts, name); problem != nil {
			status = 1
			fmt.Printf("failed %s\n%v\n", name, problem)
		} else {
			fmt.Printf("ok %s\n", name)
		}
	}
	os.Exit(status)
}

func run(parts []Part, name string) (problem any) {
	defer func() { problem = recover() }()
	for _, part := range parts {
		if part.Name == name {
			part.Run()
			return nil
		}
	}
	panic("no such part")
}
