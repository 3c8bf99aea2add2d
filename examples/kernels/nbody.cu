// A step of bodies that attract each other. A body is a float4: x, y, z and mass.

#define TILE 64 // bodies that a block holds in shared memory, and its threads

#define SOFTENING 1e-3f // squared; keeps bodies that meet from dividing by zero

extern "C" __global__ void nbody(const float4 *bodies, float4 *moved, float4 *velocities,
                                 unsigned int count, float seconds)
{
    __shared__ float4 tile[TILE];
    unsigned int i = blockIdx.x * TILE + threadIdx.x;
    float4 body = i < count ? bodies[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (unsigned int from = 0; from < count; from += TILE) {
        unsigned int j = from + threadIdx.x;
        tile[threadIdx.x] = j < count ? bodies[j] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        __syncthreads();
        for (unsigned int k = 0; k < TILE; ++k) {
            float4 other = tile[k];
            float dx = other.x - body.x, dy = other.y - body.y, dz = other.z - body.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + SOFTENING);
            float pull = other.w * inverse * inverse * inverse;
            ax += dx * pull;
            ay += dy * pull;
            az += dz * pull;
        }
        __syncthreads();
    }
    if (i >= count)
        return;
    float4 velocity = velocities[i];
    velocity.x += ax * seconds;
    velocity.y += ay * seconds;
    velocity.z += az * seconds;
    velocities[i] = velocity;
    body.x += velocity.x * seconds;
    body.y += velocity.y * seconds;
    body.z += velocity.z * seconds;
    moved[i] = body;
}
