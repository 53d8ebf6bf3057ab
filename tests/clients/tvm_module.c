/*
 * A module for TVM-FFI, against the headers of apache-tvm-ffi: test_tvm.py compiles it. That the headers
 * are theirs shows whether plugins/tvm/ffi.h says the same.
 */
#include <string.h>

#include <tvm/ffi/c_api.h>

#define EXPORT __attribute__((visibility("default")))
#define FUNCTION(name)                                                                             \
    EXPORT int __tvm_ffi_##name(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *ret)

static int
fail(const char *kind, const char *text)
{
    TVMFFIErrorSetRaisedFromCStr(kind, text);
    return -1;
}

static void
set(TVMFFIAny *ret, int32_t kind)
{
    memset(ret, 0, sizeof(*ret));
    ret->type_index = kind;
}

/* ------------------------------------------------------------------------------ values */

FUNCTION(add_one)
{
    if (count != 1 || args[0].type_index != kTVMFFIInt) {
        return fail("TypeError", "add_one takes one int");
    }
    set(ret, kTVMFFIInt);
    ret->v_int64 = args[0].v_int64 + 1;
    return 0;
}

FUNCTION(add_half)
{
    if (count != 1 || args[0].type_index != kTVMFFIFloat) {
        return fail("TypeError", "add_half takes one float");
    }
    set(ret, kTVMFFIFloat);
    ret->v_float64 = args[0].v_float64 + 0.5;
    return 0;
}

FUNCTION(kind)
{
    set(ret, kTVMFFIInt);
    ret->v_int64 = count == 1 ? args[0].type_index : -1;
    return 0;
}

/* As it came; a text and bytes come back as objects of TVM-FFI, or as small ones. */
FUNCTION(identity)
{
    if (args[0].type_index == kTVMFFIDLTensorPtr) {
        *ret = args[0];
        return 0;
    }
    return TVMFFIAnyViewToOwnedAny(&args[0], ret);
}

FUNCTION(nul_inside)
{
    const TVMFFIByteArray text = {"a\0b", 3};

    return TVMFFIStringFromByteArray(&text, ret);
}

FUNCTION(fail)
{
    return fail("ValueError", count == 1 && args[0].type_index == kTVMFFIRawStr
                                  ? args[0].v_c_str
                                  : "it was asked to");
}

FUNCTION(fail_mutely)
{
    return -1;
}

/* A function is no value. */
FUNCTION(give_function)
{
    const TVMFFIByteArray name = {"ffi.Shape", 9};
    TVMFFIObjectHandle found;

    if (TVMFFIFunctionGetGlobal(&name, &found) != 0) {
        return -1;
    }
    set(ret, kTVMFFIFunction);
    ret->v_obj = found;
    return 0;
}

/* ------------------------------------------------------------------------------ tensors */

static int64_t
count_of(const DLTensor *tensor)
{
    int64_t count = 1;
    int32_t i;

    for (i = 0; i < tensor->ndim; i++) {
        count *= tensor->shape[i];
    }
    return count;
}

/* In place. */
FUNCTION(add_one_to)
{
    DLTensor *tensor = args[0].v_ptr;
    int64_t i;

    if (count != 1 || args[0].type_index != kTVMFFIDLTensorPtr || tensor->dtype.code != kDLFloat ||
        tensor->dtype.bits != 32) {
        return fail("TypeError", "add_one_to takes one float32 tensor");
    }
    for (i = 0; i < count_of(tensor); i++) {
        ((float *)((char *)tensor->data + tensor->byte_offset))[i] += 1;
    }
    return 0;
}

/* Strides are there, though agents have none. */
FUNCTION(first_stride)
{
    const DLTensor *tensor = args[0].v_ptr;

    set(ret, kTVMFFIInt);
    ret->v_int64 = tensor->strides == NULL ? -1 : tensor->strides[0];
    return 0;
}

static float numbers[] = {1, 2, 3, 4, 5, 6};
static int64_t dims[] = {2, 3};
static int64_t columns[] = {1, 2};

static void
leave(DLManagedTensor *self)
{
    (void)self;
}

static int
give(TVMFFIAny *ret, int64_t *strides)
{
    static DLManagedTensor managed;
    TVMFFIObjectHandle made;

    managed = (DLManagedTensor){.dl_tensor = {.data = numbers,
                                              .device = {kDLCPU, 0},
                                              .ndim = 2,
                                              .dtype = {kDLFloat, 32, 1},
                                              .shape = dims,
                                              .strides = strides},
                                .deleter = leave};
    if (TVMFFITensorFromDLPack(&managed, 0, 0, &made) != 0) {
        return -1;
    }
    set(ret, kTVMFFITensor);
    ret->v_obj = made;
    return 0;
}

/* A tensor in memory of TVM-FFI's. */
FUNCTION(give_tensor)
{
    return give(ret, NULL);
}

FUNCTION(give_columns)
{
    return give(ret, columns);
}

FUNCTION(give_foreign_view)
{
    static DLTensor nobodys;

    set(ret, kTVMFFIDLTensorPtr);
    ret->v_ptr = &nobodys;
    return 0;
}

/* ------------------------------------------------------------------------------ global functions */

static int
twice(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *ret)
{
    if (count != 1 || args[0].type_index != kTVMFFIInt) {
        return fail("TypeError", "twice takes one int");
    }
    set(ret, kTVMFFIInt);
    ret->v_int64 = 2 * args[0].v_int64;
    return 0;
}

static void
add_global(const char *text)
{
    const TVMFFIByteArray name = {text, strlen(text)};
    TVMFFIObjectHandle function;

    if (TVMFFIFunctionCreate(NULL, twice, NULL, &function) == 0) {
        TVMFFIFunctionSetGlobal(&name, function, 1);
        TVMFFIObjectDecRef(function);
    }
}

__attribute__((constructor)) static void
add_globals(void)
{
    add_global("demo.twice");
    add_global("demo.has space");
    add_global("demon.twice");
}
