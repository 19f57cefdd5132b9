// Command byname calls a method that only its arguments name.
package main

import (
	"os"
	"reflect"
)

func main() {
	reflect.ValueOf(os.Stdout).MethodByName(os.Args[1]).Call(nil)
}
