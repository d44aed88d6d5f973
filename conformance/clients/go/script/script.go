// Package script is what every script here shares: servers by environment, parts by name, waiting for conditions.
package script

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

// Part is one group of checks; it panics with what failed.
type Part struct {
	Name string
	Run  func()
}

// Address is where a server listens, by the name of an environment variable.
func Address(name string) string {
	return os.Getenv(name)
}

// Equal panics unless both are the same.
func Equal(given, expected any) {
	if !reflect.DeepEqual(given, expected) {
		panic(fmt.Sprintf("%#v instead of %#v", given, expected))
	}
}

// Holds panics with what was expected unless it is so.
func Holds(what string, is bool) {
	if !is {
		panic("not so: " + what)
	}
}

// Good panics when there is an error.
func Good(err error) {
	if err != nil {
		panic(err)
	}
}

// Get gives the value of a call that has to succeed.
func Get[T any](value T, err error) T {
	Good(err)
	return value
}

// Fails panics unless there is an error whose text has these words.
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

// Until looks again until it holds.
func Until(what string, holds func() bool) {
	end := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(end) {
			panic("not within 20 s: " + what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Restart lets the test start the server again on the same port; it says so with a line.
func Restart() {
	fmt.Println("restart")
	Get(bufio.NewReader(os.Stdin).ReadString('\n'))
}

// Every has all bytes.
func Every() string {
	bytes := make([]byte, 256)
	for index := range bytes {
		bytes[index] = byte(index)
	}
	return string(bytes)
}

// Run runs the parts that the arguments name; exits with 1 when one failed.
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
